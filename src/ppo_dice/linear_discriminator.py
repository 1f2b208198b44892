"""Fit g. Here: g linear in features, by a concave maximisation that needs no learning rate.

With g = ωᵀΦ(s, a), the rows of a discriminator become vectors, b in place of the change and Δ in place of the
residual, and the difference form is concave in ω:

    D̂ = max_ω  ωᵀE[b] − Gap(Δω) − ½κ·ridge·|ω|²,      b = E_{π'}Φ − E_πΦ,   Δ = Φ(s,a) − γE_{π'}Φ(s')

κ = φ*'' at a ratio of 1, so that `ridge` is always measured against the covariance of Δ: near π' = π every
divergence is ½κ⁻¹ times a χ². For χ² itself ω = 2(Cov Δ + ridge)⁻¹E[b]. At π' = π, b = 0 and so ω = 0.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ppo_dice.chains import Rows
from ppo_dice.divergence import Divergence, best_shift, gap
from ppo_dice.types import Scalar

Form = Literal["difference", "paper"]

NEWTON_STEPS = 20
STEP_SIZES = np.append(4.0 ** -np.arange(12, dtype=np.float32), np.float32(0))
"""What a Newton step may be scaled by; the best is taken, so that no step loses ground."""


class LinearFit(NamedTuple):
    """The best g = ωᵀΦ, and what it makes of the divergence (without the ridge)."""

    weights: Float[Array, " F"]
    value: Float[Array, ""]


def fit_linear(
    divergence: Divergence, rows: Rows, ridge: Scalar = 1e-3, *, form: Form = "difference"
) -> LinearFit:
    """Maximise a form of the divergence over ω by Newton's method; rows hold features ([R, F])."""
    linear = _linear_term(rows, form)
    curvature = _curvature(divergence, divergence.slope(jnp.ones((), linear.dtype)))
    penalty = ridge * jnp.where(curvature > 0, curvature, 0.5)  # total variation has no curvature at 1
    step_sizes = jnp.asarray(STEP_SIZES, linear.dtype)

    def step(_: Any, omega: Float[Array, " F"]) -> Float[Array, " F"]:
        residual = rows.residual @ omega
        slope, hessian = _gap_derivatives(divergence, rows, residual)
        bowl = hessian + penalty * jnp.eye(len(omega), dtype=omega.dtype)
        direction = jnp.linalg.solve(bowl, linear - slope - penalty * omega)
        change_of_residual = rows.residual @ direction

        def objective(size: Float[Array, ""]) -> Float[Array, ""]:
            candidate = omega + size * direction
            loss = gap(divergence, residual + size * change_of_residual, rows.weight)
            return linear @ candidate - loss - 0.5 * penalty * candidate @ candidate

        values = jax.vmap(objective)(step_sizes)
        best = jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))
        return omega + step_sizes[best] * direction

    omega = jax.lax.fori_loop(0, NEWTON_STEPS, step, jnp.zeros_like(linear))
    return LinearFit(omega, evaluate_linear(divergence, rows, omega, form=form))


def evaluate_linear(
    divergence: Divergence, rows: Rows, omega: Float[Array, " F"], *, form: Form = "difference"
) -> Float[Array, ""]:
    """What g = ωᵀΦ makes of the divergence, e.g. on other rows than it was fitted to."""
    return _linear_term(rows, form) @ omega - gap(divergence, rows.residual @ omega, rows.weight)


def conditional_mean(
    features: Float[Array, "B P"], target: Float[Array, "B F"], weight: Float[Array, " B"], ridge: Scalar
) -> Float[Array, "B F"]:
    """E[target | features] by ridge regression with an intercept.

    In place of E_{π'}Φ(s') it removes the noise of the one sampled s', which otherwise makes φ*(x) too large
    and the estimate too small, however many rows there are, wherever the dynamics are stochastic.
    """
    share = weight / jnp.sum(weight)
    target_mean = (share @ target)[None]
    features = features - (share @ features)[None]
    weighted = features * share[:, None]
    gram = weighted.T @ features + ridge * jnp.eye(features.shape[1], dtype=features.dtype)
    return target_mean + features @ jnp.linalg.solve(gram, weighted.T @ (target - target_mean))


def _linear_term(rows: Rows, form: Form) -> Float[Array, " F"]:
    """The vector by which ω enters the objective outside the gap."""
    if form == "paper":
        return rows.initial - rows.weight @ rows.residual
    return rows.weight @ rows.change


def _gap_derivatives(divergence: Divergence, rows: Rows, residual: Array) -> tuple[Array, Array]:
    """Gradient and Hessian of Gap(Δω) in ω, the best shift moving along; `residual` is Δω."""
    shifted = residual - best_shift(divergence, residual, rows.weight)
    slope = (rows.weight * (divergence.ratio(shifted) - 1)) @ rows.residual
    bend = rows.weight * _curvature(divergence, shifted)
    total = jnp.sum(bend)
    centred = rows.residual - (bend @ rows.residual / jnp.where(total > 0, total, 1))[None]
    return slope, (centred * bend[:, None]).T @ centred


def _curvature(divergence: Divergence, u: Array) -> Array:
    """φ*''(u)."""
    return jax.jvp(divergence.ratio, (u,), (jnp.ones_like(u),))[1]
