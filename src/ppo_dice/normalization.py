"""Running means and variances as a value: updated between iterations, frozen within one."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ppo_dice.types import Scalar

EPSILON = 1e-8


class Moments(eqx.Module):
    """Count, mean and (population) variance of everything seen so far."""

    count: Float[Array, ""]
    mean: Float[Array, "*O"]
    variance: Float[Array, "*O"]


def empty_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Nothing seen yet: mean 0 and variance 1, so that `normalize` leaves values as they are."""
    return Moments(jnp.zeros((), jnp.float32), jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32))


def update_moments(moments: Moments, values: Float[Array, "B *O"]) -> Moments:
    """Take in a batch: the moments of the union, by the parallel formula of Chan et al. (1979).

    mean = m + δ·n_B/n,   variance = (n_A·v_A + n_B·v_B + δ²·n_A·n_B/n) / n,   δ = m_B − m_A
    """
    batch_count = jnp.float32(values.shape[0])
    batch_mean, batch_variance = jnp.mean(values, axis=0), jnp.var(values, axis=0)
    count = moments.count + batch_count
    new_share = batch_count / count
    delta = batch_mean - moments.mean
    return Moments(
        count,
        moments.mean + delta * new_share,
        (1 - new_share) * moments.variance
        + new_share * batch_variance
        + delta**2 * (1 - new_share) * new_share,
    )


def normalize(moments: Moments, value: Float[Array, "*O"], clip: Scalar) -> Float[Array, "*O"]:
    """(x − mean)/std of one observation, clipped to ± clip."""
    return jnp.clip((value - moments.mean) / jnp.sqrt(moments.variance + EPSILON), -clip, clip)


def scale(moments: Moments, value: Float[Array, "..."], clip: Scalar) -> Float[Array, "..."]:
    """x/std without centring, as rewards are normalised, clipped to ± clip."""
    return jnp.clip(value / jnp.sqrt(moments.variance + EPSILON), -clip, clip)


class Normalizer(eqx.Module):
    """Standardises observations by the moments of all that the run has seen."""

    moments: Moments
    clip: Float[Array, "..."]

    def __call__(self, obs: Float[Array, "*O"]) -> Float[Array, "*O"]:
        """The observation as networks see it."""
        return normalize(self.moments, obs, self.clip)


def init_normalizer(shape: tuple[int, ...], clip: Scalar) -> Normalizer:
    """A normaliser that has seen nothing; with an infinite clip it is the identity until it is updated."""
    return Normalizer(empty_moments(shape), jnp.asarray(clip, jnp.float32))
