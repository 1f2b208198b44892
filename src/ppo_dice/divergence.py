"""Divergences D_φ(μ'‖μ) and their estimates from a discriminator g: the paper's mathematics, arrays only.

    D_φ(μ'‖μ) = E_μ[φ(μ'/μ)] = sup_x E_{μ'}[x] − E_μ[φ*(x)],     φ*(u) = sup_t tu − φ(t)

Samples of μ' do not exist. With x(s,a) = g(s,a) − γ E_{s'}V'_g(s') and V'_g(s) = E_{a~π'} g(s,a), the first
term telescopes (`eq:dice` of the paper), in either of two forms:

    paper:       E_{μ'}[x] = (1−γ) E_ρ[V'_g]
    difference:  E_{μ'}[x] = E_μ[x] + E_d[E_{π'}g(s,·) − E_π g(s,·)]

Both leave a gap to subtract, `Gap(x) = E_μ[φ*(x) − x]`, and both gain by the best shift of x, which costs
g only a constant: `Gap(x) = min_c E_μ[φ*(x − c) − (x − c)]`. For KL that is log E eˣ − E x (Donsker and
Varadhan), for χ² it is Var(x)/4. The shift also keeps x − c inside the domain of φ*, whatever x is.

Arguments: `residual` [R] holds x in every row, `weight` [R] the share of the row (they sum to 1), and
`change` [R] is E_{π'}g(s,·) − E_π g(s,·).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from ppo_dice.errors import UserError

Function = Callable[[Array], Array]

_BISECTIONS = 60


@dataclass(frozen=True)
class Divergence:
    """D_φ(μ'‖μ) by its generator φ; all functions act on every element of an array."""

    name: str
    generator: Function
    """φ(t) of a density ratio t = μ'/μ ≥ 0."""
    slope: Function
    """φ'(t)."""
    conjugate: Function
    """φ*(u), infinite outside its domain."""
    ratio: Function
    """φ*'(u), the density ratio that a residual stands for."""
    upper: float = float("inf")
    """The end of φ*'s domain, which is also the slope of φ at infinity."""
    extension: Callable[[float], "Divergence"] | None = None
    """What `extended` gives, where that is not the common parabola."""
    closed_gap: Callable[[Array, Array], Array] | None = None
    """Gap with the best shift as a function of (residual, weight), where it has a closed form."""


def kl() -> Divergence:
    """KL(μ'‖μ): φ = t log t − t + 1."""
    return Divergence(
        "kl",
        generator=lambda t: xlogy(t, t) - t + 1,
        slope=jnp.log,
        conjugate=jnp.expm1,
        ratio=jnp.exp,
        closed_gap=_kl_gap,
    )


def kl_paper() -> Divergence:
    """KL(μ'‖μ) by the paper's φ = t log t, whose optimal g is that of `kl` plus 1/(1−γ)."""
    return Divergence(
        "kl_paper",
        generator=lambda t: xlogy(t, t),
        slope=lambda t: jnp.log(t) + 1,
        conjugate=lambda u: jnp.exp(u - 1),
        ratio=lambda u: jnp.exp(u - 1),
        closed_gap=_kl_gap,
    )


def reverse_kl() -> Divergence:
    """KL(μ‖μ'): φ = −log t + t − 1."""
    return Divergence(
        "reverse_kl",
        generator=lambda t: -jnp.log(t) + t - 1,
        slope=lambda t: 1 - 1 / t,
        conjugate=lambda u: _below(u, 1.0, lambda v: -jnp.log1p(-v)),
        ratio=lambda u: _below(u, 1.0, lambda v: 1 / (1 - v)),
        upper=1.0,
    )


def chi2() -> Divergence:
    """Pearson's χ²(μ'‖μ): φ = (t − 1)²."""
    return Divergence(
        "chi2",
        generator=lambda t: (t - 1) ** 2,
        slope=lambda t: 2 * (t - 1),
        conjugate=lambda u: jnp.where(u < -2, -1, u + u**2 / 4),
        ratio=lambda u: jnp.maximum(1 + u / 2, 0),
        closed_gap=_chi2_gap,
    )


def tv() -> Divergence:
    """Total variation ‖μ' − μ‖₁: φ = |t − 1|. The paper's factor ½ is another convention."""
    return Divergence(
        "tv",
        generator=lambda t: jnp.abs(t - 1),
        slope=lambda t: jnp.sign(t - 1),
        conjugate=lambda u: jnp.where(u > 1, jnp.inf, jnp.maximum(u, -1)),
        ratio=lambda u: jnp.where(u > 1, jnp.inf, jnp.where(u > -1, 1, 0).astype(u.dtype)),
        upper=1.0,
        extension=rounded_tv,
    )


def rounded_tv(largest_ratio: float) -> Divergence:
    """φ = |t − 1| + ½ε(t − 1)², ε = 1/largest_ratio: its φ* is smooth and finite, u + (|u| − 1)₊²/(2ε)."""
    slack = 1 / largest_ratio

    def beyond(u: Array) -> Array:
        return jnp.sign(u) * jnp.maximum(jnp.abs(u) - 1, 0)

    return Divergence(
        "tv",
        generator=lambda t: jnp.abs(t - 1) + slack / 2 * (t - 1) ** 2,
        slope=lambda t: jnp.sign(t - 1) + slack * (t - 1),
        conjugate=lambda u: u + beyond(u) ** 2 / (2 * slack),
        ratio=lambda u: 1 + beyond(u) / slack,
    )


def js() -> Divergence:
    """Jensen and Shannon, with the factor ½ to each half: φ = [t log t − (t+1) log((t+1)/2)]/2."""
    half_log_2 = float(np.log(2) / 2)
    return Divergence(
        "js",
        # The same as in the equation, but no difference of infinities where t is huge.
        generator=lambda t: (xlogy(t, t / ((t + 1) / 2)) - jnp.log((t + 1) / 2)) / 2,
        slope=lambda t: jnp.log(t / ((t + 1) / 2)) / 2,
        conjugate=lambda u: _below(u, half_log_2, lambda v: -jnp.log(2 - jnp.exp(2 * v)) / 2),
        ratio=lambda u: _below(u, half_log_2, lambda v: jnp.exp(2 * v) / (2 - jnp.exp(2 * v))),
        upper=half_log_2,
    )


def hellinger() -> Divergence:
    """Squared Hellinger distance: φ = (√t − 1)²."""
    return Divergence(
        "hellinger",
        generator=lambda t: (jnp.sqrt(t) - 1) ** 2,
        slope=lambda t: 1 - 1 / jnp.sqrt(t),
        conjugate=lambda u: _below(u, 1.0, lambda v: v / (1 - v)),
        ratio=lambda u: _below(u, 1.0, lambda v: (1 - v) ** -2),
        upper=1.0,
    )


def soft_chi2() -> Divergence:
    """KL where μ' is the smaller, half of χ² where it is the larger: no constraint, and no explosion."""
    return Divergence(
        "soft_chi2",
        generator=lambda t: jnp.where(t < 1, xlogy(t, t) - t + 1, (t - 1) ** 2 / 2),
        slope=lambda t: jnp.where(t < 1, jnp.log(t), t - 1),
        conjugate=lambda u: jnp.where(u < 0, jnp.expm1(jnp.minimum(u, 0)), u + u**2 / 2),
        ratio=lambda u: jnp.where(u < 0, jnp.exp(jnp.minimum(u, 0)), 1 + u),
    )


def alpha(order: float = 1.5) -> Divergence:
    """Cressie and Read's family: φ = (tᵅ − αt + α − 1)/(α(α − 1)); α = 2 is χ²/2, ½ twice Hellinger."""
    if not np.isfinite(order) or order in (0, 1):
        raise UserError(f"alpha must be a number other than 0 (reverse_kl) and 1 (kl), but is {order}.")
    upper = float("inf") if order > 1 else 1 / (1 - order)

    def power(u: Array, exponent: float) -> Array:
        """(1 + (α−1)u)₊ to an exponent, without NaN in gradients where the base is 0."""
        base = 1 + (order - 1) * u
        return jnp.where(base > 0, jnp.where(base > 0, base, 1) ** exponent, 0.0 if exponent > 0 else jnp.inf)

    def conjugate(u: Array) -> Array:
        return jnp.where(u > upper, jnp.inf, (power(u, order / (order - 1)) - 1) / order)

    return Divergence(
        "alpha",
        generator=lambda t: (t**order - order * t + order - 1) / (order * (order - 1)),
        slope=lambda t: (t ** (order - 1) - 1) / (order - 1),
        conjugate=conjugate,
        ratio=lambda u: power(u, 1 / (order - 1)),
        upper=upper,
    )


DIVERGENCES: dict[str, Callable[..., Divergence]] = {
    make.__name__: make for make in (kl, reverse_kl, chi2, tv, js, hellinger, alpha, soft_chi2, kl_paper)
}
"""What makes each divergence, by name. `alpha` takes its order; a new entry is tested like all others."""


def get_divergence(name: str, **parameters: float) -> Divergence:
    """A divergence of the registry, e.g. `get_divergence("alpha", order=.5)`."""
    if name not in DIVERGENCES:
        raise UserError(f"There is no divergence {name!r}; known are: {', '.join(DIVERGENCES)}.")
    return DIVERGENCES[name](**parameters)


def extended(divergence: Divergence, largest_ratio: float = 20.0) -> Divergence:
    """The same with φ* continued by a parabola where it stands for ratios above `largest_ratio`.

    It is then finite everywhere, and so can be used without a shift. φ becomes larger, but for ratios above
    `largest_ratio` only, and there like t²; a *linear* continuation would make it infinite there. Total
    variation has no curvature of its own, and gets a little of it everywhere: see `rounded_tv`.
    """
    if divergence.extension is not None:
        return divergence.extension(largest_ratio)
    if divergence.upper == float("inf"):
        return divergence
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        place = float(divergence.slope(jnp.asarray(largest_ratio)))
        curvature = float(jax.grad(divergence.ratio)(jnp.asarray(place)))
        value = float(divergence.conjugate(jnp.asarray(place)))

    def conjugate(u: Array) -> Array:
        beyond = jnp.maximum(u - place, 0)
        return jnp.where(
            u > place,
            value + largest_ratio * beyond + curvature / 2 * beyond**2,
            divergence.conjugate(jnp.minimum(u, place)),
        )

    def ratio(u: Array) -> Array:
        beyond = jnp.maximum(u - place, 0)
        return jnp.where(
            u > place, largest_ratio + curvature * beyond, divergence.ratio(jnp.minimum(u, place))
        )

    def generator(t: Array) -> Array:
        beyond = jnp.maximum(t - largest_ratio, 0)
        return (
            divergence.generator(jnp.minimum(t, largest_ratio)) + place * beyond + beyond**2 / (2 * curvature)
        )

    def slope(t: Array) -> Array:
        beyond = jnp.maximum(t - largest_ratio, 0)
        return jnp.where(
            t > largest_ratio, place + beyond / curvature, divergence.slope(jnp.minimum(t, largest_ratio))
        )

    return replace(
        divergence,
        generator=generator,
        slope=slope,
        conjugate=conjugate,
        ratio=ratio,
        upper=float("inf"),
    )


def gap(
    divergence: Divergence, residual: Float[Array, " R"], weight: Float[Array, " R"], *, shift: bool = True
) -> Float[Array, ""]:
    """min_c E[φ*(x − c) − (x − c)] ≥ 0; with `shift=False` E[φ*(x) − x], the c of which is 0."""
    if not shift:
        return jnp.sum(weight * (divergence.conjugate(residual) - residual))
    if divergence.closed_gap is not None:
        return divergence.closed_gap(residual, weight)
    residual = _of_rows_that_count(residual, weight)
    shifted = residual - best_shift(divergence, residual, weight)
    return jnp.sum(weight * (divergence.conjugate(shifted) - shifted))


def best_shift(
    divergence: Divergence, residual: Float[Array, " R"], weight: Float[Array, " R"]
) -> Float[Array, ""]:
    """The c at which E[φ*'(x − c)] = 1: the ratios that the shifted residuals stand for average to one.

    E φ*'(x − c) falls as c grows: it is at least 1 where every x − c stands for a ratio of 1 or more, and at
    most 1 where none does, so bisection finds c. To gradients it is a constant (the envelope theorem).
    """
    residual = jax.lax.stop_gradient(_of_rows_that_count(residual, weight))
    one = divergence.slope(jnp.ones((), residual.dtype))

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        above = jnp.sum(weight * divergence.ratio(residual - middle)) > 1
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    bracket = jnp.min(residual) - one, jnp.max(residual) - one
    return jax.lax.fori_loop(0, _BISECTIONS, halve, bracket)[1]  # the side that lies in the domain


def difference_form(
    divergence: Divergence,
    change: Float[Array, " R"],
    residual: Float[Array, " R"],
    weight: Float[Array, " R"],
    *,
    shift: bool = True,
) -> Float[Array, ""]:
    """E_d[E_{π'}g − E_π g] − Gap(x), at most D_φ(μ'‖μ) for every g, and at most 0 where π' = π."""
    return jnp.sum(weight * change) - gap(divergence, residual, weight, shift=shift)


def saddle_form(
    divergence: Divergence,
    change: Float[Array, " R"],
    residual: Float[Array, " R"],
    ratio: Float[Array, " R"],
    weight: Float[Array, " R"],
) -> Float[Array, ""]:
    """E_d[E_{π'}g − E_π g] + E_μ[φ(ζ) − (ζ − 1)x], to be minimised over ζ(s,a) ≥ 0 and maximised over g.

    The difference form with φ* written out, φ*(x) = max_ζ ζx − φ(ζ). It is linear in x: one sampled s' makes
    no error on average, where φ* of a sampled x is too large. And the domain of φ* does not matter.
    """
    return jnp.sum(weight * (change + divergence.generator(ratio) - (ratio - 1) * residual))


def paper_form(
    divergence: Divergence,
    initial: Float[Array, ""],
    residual: Float[Array, " R"],
    weight: Float[Array, " R"],
    *,
    shift: bool = True,
) -> Float[Array, ""]:
    """(1−γ)E_ρ[V'_g] − E_μ[φ*(x)], or with the best shift of x; `initial` is (1−γ)E_ρ[V'_g]."""
    return initial - jnp.sum(weight * residual) - gap(divergence, residual, weight, shift=shift)


def density_ratio(
    divergence: Divergence, residual: Float[Array, " R"], weight: Float[Array, " R"], *, shift: bool = True
) -> Float[Array, " R"]:
    """μ'/μ in every row, as far as g knows: φ*'(x − c). With the best shift its mean is 1."""
    c = best_shift(divergence, residual, weight) if shift else 0.0
    return divergence.ratio(residual - c)


def largest_certifiable(divergence: Divergence, n_rows: int) -> Float[Array, ""]:
    """The most that `n_rows` samples of μ can show: all of μ' in one of them, [φ(n) + (n − 1)φ(0)]/n.

    For KL this is log n. A larger reading is an error of the discriminator, not a divergence.
    """
    n = jnp.float32(n_rows)
    return (divergence.generator(n) + (n - 1) * divergence.generator(jnp.zeros_like(n))) / n


def _of_rows_that_count(residual: Array, weight: Array) -> Array:
    """Rows of no weight take the mean residual, for they must not narrow the domain of φ*."""
    return jnp.where(weight > 0, residual, jnp.sum(weight * residual))


def _kl_gap(residual: Array, weight: Array) -> Array:
    """log E eˣ − E x."""
    return jax.nn.logsumexp(residual, b=weight) - jnp.sum(weight * residual)


def _chi2_gap(residual: Array, weight: Array) -> Array:
    """Var(x)/4, for φ = (t − 1)² on all of ℝ; no less tight, since the best ratio is positive anyway."""
    mean = jnp.sum(weight * residual)
    return jnp.sum(weight * (residual - mean) ** 2) / 4


def _below(u: Array, end: float, inside: Function) -> Array:
    """`inside(u)` for u below `end`, ∞ from there on; no NaN in gradients."""
    return jnp.where(u < end, inside(jnp.where(u < end, u, 0)), jnp.inf)
