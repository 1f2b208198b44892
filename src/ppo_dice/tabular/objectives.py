"""Exact values of what the estimators estimate: every expectation is a plain sum in float64.

With infinitely many samples, and the true expectation over s' in the residual, the library's own functions of
arrays would have these values. Only φ and its relatives are shared with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ppo_dice.divergence import Divergence
from ppo_dice.errors import UserError
from ppo_dice.tabular.chains import Chain, Visitation, discounted_sum, expectation, visitation

_SECTIONS, _ROUNDS = 65, 12  # 64¹² ≈ 5e21: the bracket of the shift shrinks to float64's precision
_ROUNDING = 1e-9


def in_float64(function: Callable[[Array], Array], values: np.ndarray | float) -> np.ndarray:
    """A function of JAX arrays, evaluated in float64 whatever JAX's default is."""
    with jax.enable_x64(True):
        return np.asarray(function(jnp.asarray(values, jnp.float64)))


def density_ratio(mu_new: Float[np.ndarray, "S A"], mu_old: Float[np.ndarray, "S A"]) -> np.ndarray:
    """μ'/μ: infinite where only μ' visits, and 1, which counts for nothing, where neither does."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(mu_new == mu_old, 1.0, mu_new / mu_old)


def phi_divergence(
    divergence: Divergence, mu_new: Float[np.ndarray, "S A"], mu_old: Float[np.ndarray, "S A"]
) -> float:
    """D_φ(μ'‖μ) = Σ μ φ(μ'/μ) + φ'(∞) Σ_{μ=0} μ', which is infinite where needed support is missing."""
    ratio = density_ratio(mu_new, mu_old)
    supported = np.isfinite(ratio)
    phi = in_float64(divergence.generator, np.where(supported, ratio, 1.0))
    inside = expectation(np.where(supported, mu_old, 0.0).ravel(), phi.ravel())
    outside = mu_new[~supported].sum()
    return float(inside + (divergence.upper * outside if outside > 0 else 0.0))


@dataclass(frozen=True)
class PopulationObjective:
    """What the discriminator g [S, A] maximises, for one pair of policies on one chain.

    V'_g(s) = E_{a~π'}g(s,a), and the residual x(s,a) = g(s,a) − γ E_{s'}V'_g(s') is the expected one. Every
    g gives a lower bound of D_φ(μ'‖μ); `optimum()` attains it. With `shift` the best constant is subtracted
    from x, which a constant added to g could do as well.
    """

    chain: Chain
    pi_new: Float[np.ndarray, "S A"]
    pi_old: Float[np.ndarray, "S A"]
    divergence: Divergence

    @cached_property
    def new(self) -> Visitation:
        """d' and μ'."""
        return visitation(self.chain, self.pi_new)

    @cached_property
    def old(self) -> Visitation:
        """d and μ."""
        return visitation(self.chain, self.pi_old)

    @cached_property
    def exact(self) -> float:
        """D_φ(μ'‖μ) by summation, with no g."""
        return phi_divergence(self.divergence, self.new.mu, self.old.mu)

    def optimum(self) -> Float[np.ndarray, "S A"]:
        """g* = (I − γP^{π'})⁻¹ φ'(μ'/μ); −∞ where π' may reach what it leaves out, if φ'(0) = −∞."""
        if not np.isfinite(self.exact):
            raise UserError(f"No g is optimal where the {self.divergence.name} divergence is infinite.")
        ratio = density_ratio(self.new.mu, self.old.mu)
        slope = in_float64(self.divergence.slope, np.where(np.isfinite(ratio), ratio, 1.0))
        return discounted_sum(
            self.chain, self.pi_new, np.where(np.isfinite(ratio), slope, self.divergence.upper)
        )

    def paper(self, g: Float[np.ndarray, "S A"], *, shift: bool = False) -> float:
        """(1−γ)E_ρ[V'_g] − E_μ[φ*(x)] (`eq:dice` of the paper)."""
        return self.initial_term(g) - self.conjugate_mean(g, shift=shift)

    def difference(self, g: Float[np.ndarray, "S A"], *, shift: bool = False) -> float:
        """E_d[E_{π'}g − E_πg] − Gap(x), which is the same number for every finite g."""
        return self.mean_change(g) - self.gap(g, shift=shift)

    def donsker_varadhan(self, g: Float[np.ndarray, "S A"]) -> float:
        """(1−γ)E_ρ[V'_g] − log E_μ[eˣ], a lower bound of KL(μ'‖μ) whichever divergence this is made for."""
        x = self.residual(g)
        largest = x[self.old.mu > 0].max()
        return self.initial_term(g) - float(np.log(self._mean(np.exp(x - largest))) + largest)

    def initial_term(self, g: Float[np.ndarray, "S A"]) -> float:
        """(1−γ)E_ρ[V'_g]."""
        return float((1 - self.chain.gamma) * expectation(self.chain.initial, expectation(self.pi_new, g)))

    def mean_change(self, g: Float[np.ndarray, "S A"]) -> float:
        """E_d[E_{π'}g − E_πg]."""
        change = expectation(self.pi_new, _finite(g)) - expectation(self.pi_old, g)
        return float(expectation(self.old.d, change))

    def mean_residual(self, g: Float[np.ndarray, "S A"]) -> float:
        """E_μ[x]."""
        return self._mean(self.residual(_finite(g)))

    def gap(self, g: Float[np.ndarray, "S A"], *, shift: bool = False) -> float:
        """E_μ[φ*(x) − x], or with `shift` min_c E_μ[φ*(x − c) − (x − c)]."""
        return self.conjugate_mean(g, shift=shift) - self.mean_residual(g)

    def conjugate_mean(self, g: Float[np.ndarray, "S A"], *, shift: bool = False) -> float:
        """E_μ[φ*(x)], or with `shift` min_c E_μ[φ*(x − c)] + c."""
        x = self.residual(g)
        c = self._best_shift(x) if shift else 0.0
        return self._mean(self._conjugate(x - c)) + c

    def residual(self, g: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """x = g − γ E_{s'}V'_g(s'), and −∞ where g is."""
        next_value = expectation(self.chain.gamma * self.chain.transition, expectation(self.pi_new, g))
        return np.where(np.isneginf(g), g, g - np.where(np.isneginf(g), 0.0, next_value))

    def _mean(self, value: Float[np.ndarray, "S A"]) -> float:
        """E_μ."""
        return float(expectation(self.old.mu.ravel(), value.ravel()))

    def _conjugate(self, x: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """φ*, with its limit −φ(0) at −∞, and not thrown out of a closed domain by rounding."""
        upper = self.divergence.upper
        within = np.where(x <= upper + _ROUNDING, np.minimum(x, upper), x)
        finite = in_float64(self.divergence.conjugate, np.where(np.isneginf(x), 0.0, within))
        return np.where(np.isneginf(x), -in_float64(self.divergence.generator, 0.0), finite)

    def _best_shift(self, x: Float[np.ndarray, "S A"]) -> float:
        """The c where E_μ[φ*'(x − c)], which falls with c, crosses one; beyond its domain it is infinite."""
        counts = (self.old.mu > 0) & ~np.isneginf(x)
        weight, values = (
            np.where(counts, self.old.mu, 0).ravel(),
            np.where(counts, x, x[counts].min()).ravel(),
        )
        # All ratios are at least 1 over their share at the lower end, and at most 1 at the upper.
        ends = in_float64(self.divergence.slope, np.array([1 / min(weight.sum(), 1.0), 1.0]))
        low, high = values.min() - ends[0], values.max() - ends[1]
        for _ in range(_ROUNDS):
            shifts = np.linspace(low, high, _SECTIONS)
            ratios = in_float64(self.divergence.ratio, values - shifts[:, None])
            n_above = int((expectation(weight, ratios) > 1).sum())
            low, high = shifts[max(n_above - 1, 0)], shifts[min(n_above, _SECTIONS - 1)]
        return float(high)


def _finite(g: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    if not np.isfinite(g).all():
        raise UserError("The difference form needs a finite g: it would be the difference of two infinities.")
    return g
