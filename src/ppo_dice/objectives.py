"""The losses of PPO as functions of arrays."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ppo_dice.types import Scalar


def surrogate(log_ratio: Float[Array, " B"], advantage: Float[Array, " B"]) -> Float[Array, ""]:
    """L = E[(π'/π)·Â], the importance-weighted advantage."""
    return jnp.mean(jnp.exp(log_ratio) * advantage)


def clipped_surrogate(
    log_ratio: Float[Array, " B"], advantage: Float[Array, " B"], clip_range: Scalar
) -> Float[Array, ""]:
    """L_clip = E[min(κÂ, clip(κ, 1−ε, 1+ε)Â)] with κ = π'/π."""
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - clip_range, 1 + clip_range)
    return jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def value_loss(prediction: Float[Array, " B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """E[(V(s) − target)²]."""
    return jnp.mean((prediction - target) ** 2)


def approximate_kl(log_ratio: Float[Array, " B"]) -> Float[Array, ""]:
    """E[κ − 1 − log κ], the low-variance estimate of KL(π‖π') from actions of π."""
    return jnp.mean(jnp.expm1(log_ratio) - log_ratio)


def clip_fraction(log_ratio: Float[Array, " B"], clip_range: Scalar) -> Float[Array, ""]:
    """The share of actions whose ratio lies outside 1 ± ε."""
    return jnp.mean((jnp.abs(jnp.expm1(log_ratio)) > clip_range).astype(log_ratio.dtype))


def adaptive_coefficient(advantage: Float[Array, " B"], percentile: Scalar) -> Float[Array, ""]:
    """λ as the paper sets it: a high percentile of |Â|, in the place of max |Â|."""
    return jnp.percentile(jnp.abs(advantage), percentile)
