"""Running means and variances as a value: updated between iterations, frozen within one."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from ppo_dice.images import ImageView, join_row, split_row
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
    """Standardises numbers by the moments of all that the run has seen, and cuts images into blocks."""

    moments: Moments
    clip: Float[Array, "..."]
    views: tuple[ImageView, ...] = eqx.field(static=True, default=())

    def __call__(self, obs: Shaped[Array, " O"]) -> Shaped[Array, " V"]:
        """The observation as networks see it."""
        if not self.views:
            return normalize(self.moments, obs, self.clip)
        images, numbers = split_row(obs, [view.image.size for view in self.views])
        cut = [view.cut(pixels) for view, pixels in zip(self.views, images)]
        return join_row(cut, normalize(self.moments, numbers, self.clip))

    def numbers(self, obs: Shaped[Array, " O"]) -> Float[Array, " N"]:
        """Those of an observation as it comes from the environment."""
        return split_row(obs, [view.image.size for view in self.views])[1] if self.views else obs


def init_normalizer(size: int, clip: Scalar, views: tuple[ImageView, ...] = ()) -> Normalizer:
    """A normaliser that has seen nothing; with an infinite clip it is the identity until it is updated."""
    return Normalizer(empty_moments((size,)), jnp.asarray(clip, jnp.float32), views)


def update_normalizer(normalizer: Normalizer, obs: Shaped[Array, "B O"]) -> Normalizer:
    """Let the statistics take in a batch."""
    moments = update_moments(normalizer.moments, jax.vmap(normalizer.numbers)(obs))
    return replace(normalizer, moments=moments)
