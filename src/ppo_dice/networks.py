"""What maps one observation to numbers. Every leaf of every Module is an array; callers `vmap`."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ppo_dice.distributions import (
    IMPOSSIBLE,
    Categorical,
    DiagonalGaussian,
    Distribution,
    gaussian_noise,
    gumbel_noise,
)
from ppo_dice.types import Key, Scalar

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}
HIDDEN_GAIN = float(np.sqrt(2))


class MLP(eqx.Module):
    """Linear layers with a non-linearity between them; orthogonal weights, zero biases."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: str = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], key: Key, *, activation: str, head_gain: Scalar) -> None:
        keys = jax.random.split(key, len(sizes) - 1)
        gains: list[Any] = [HIDDEN_GAIN] * (len(sizes) - 2) + [head_gain]
        self.layers = tuple(
            _orthogonal_linear(n_in, n_out, gain, key)
            for n_in, n_out, gain, key in zip(sizes[:-1], sizes[1:], gains, keys)
        )
        self.activation = activation

    def __call__(self, x: Float[Array, " I"]) -> Float[Array, " J"]:
        """Apply the layers in turn."""
        *hidden, head = self.layers
        for layer in hidden:
            x = ACTIVATIONS[self.activation](layer(x))
        return head(x)


@runtime_checkable
class Policy(Protocol):
    """A map from one (normalised) observation to a distribution over actions."""

    def __call__(self, obs: Float[Array, " O"]) -> Distribution:
        """π(·|s)."""
        ...

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Noise for `shape` many actions, as the distribution's `sample` takes it."""
        ...


class GaussianPolicy(eqx.Module):
    """Continuous actions: a mean by MLP, and standard deviations that do not depend on the state."""

    mean: MLP
    log_std: Float[Array, " A"]

    def __call__(self, obs: Float[Array, " O"]) -> DiagonalGaussian:
        """N(mean(s), std²)."""
        return DiagonalGaussian(self.mean(obs), self.log_std)

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Standard normal noise."""
        return gaussian_noise(key, (*shape, self.log_std.shape[-1]))


class CategoricalPolicy(eqx.Module):
    """Discrete actions with one or several components: logits by MLP."""

    logits: MLP
    counts: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, obs: Float[Array, " O"]) -> Categorical:
        """Softmax of the logits, per component."""
        logits = self.logits(obs)
        exists = np.arange(max(self.counts)) < np.asarray(self.counts)[:, None]
        place = np.cumsum(exists).reshape(exists.shape) - 1
        return Categorical(jnp.where(exists, logits[np.maximum(place, 0)], IMPOSSIBLE))

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Gumbel noise."""
        return gumbel_noise(key, (*shape, len(self.counts), max(self.counts)))


class StateValue(eqx.Module):
    """V(s) by MLP."""

    body: MLP

    def __call__(self, obs: Float[Array, " O"]) -> Float[Array, ""]:
        """Expected discounted return from one state."""
        return self.body(obs)[0]


def _orthogonal_linear(n_in: int, n_out: int, gain: Any, key: Key) -> eqx.nn.Linear:
    weight = jax.nn.initializers.orthogonal(gain)(key, (n_out, n_in), jnp.float32)
    linear = eqx.nn.Linear(n_in, n_out, key=key)
    return eqx.tree_at(
        lambda layer: (layer.weight, layer.bias), linear, (weight, jnp.zeros(n_out, jnp.float32))
    )
