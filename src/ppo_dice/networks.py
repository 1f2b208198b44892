"""What maps one observation to numbers. Every leaf of every Module is an array; callers `vmap`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ppo_dice.distributions import (
    IMPOSSIBLE,
    Categorical,
    DiagonalGaussian,
    Distribution,
    gaussian_noise,
    gumbel_noise,
)
from ppo_dice.types import ActionKind, Key, Scalar

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}
HIDDEN_GAIN = float(np.sqrt(2))


class MLP(eqx.Module):
    """Linear layers with a non-linearity between them."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: Float[Array, " I"]) -> Float[Array, " J"]:
        """Apply the layers in turn."""
        *hidden, head = self.layers
        for layer in hidden:
            x = ACTIVATIONS[self.activation](layer(x))
        return head(x)


def init_mlp(sizes: Sequence[int], key: Key, *, activation: str, head_gain: Scalar) -> MLP:
    """Orthogonal weights with gain √2, in the last layer `head_gain`; biases of zero."""
    keys = jax.random.split(key, len(sizes) - 1)
    gains: list[Any] = [HIDDEN_GAIN] * (len(sizes) - 2) + [head_gain]
    layers = (
        _orthogonal_linear(n_in, n_out, gain, key)
        for n_in, n_out, gain, key in zip(sizes[:-1], sizes[1:], gains, keys)
    )
    return MLP(tuple(layers), activation)


@runtime_checkable
class Policy(Protocol):
    """A map from one (normalised) observation to a distribution over actions."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Categories of each component of an action; none where actions are continuous."""
        ...

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

    @property
    def counts(self) -> tuple[int, ...]:
        """None."""
        return ()

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
        return Categorical(jnp.where(exists, logits[np.maximum(place, 0)], IMPOSSIBLE), self.counts)

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Gumbel noise."""
        return gumbel_noise(key, (*shape, len(self.counts), max(self.counts)))


class StateValue(eqx.Module):
    """V(s) by MLP."""

    body: MLP

    def __call__(self, obs: Float[Array, " O"]) -> Float[Array, ""]:
        """Expected discounted return from one state."""
        return self.body(obs)[0]


class ActionInDiscriminator(eqx.Module):
    """g(s, a) by a network of both; an action with components enters as their concatenated one-hots.

    The first layer is split in two: the part of the state is computed once for all actions in that state.
    """

    state: eqx.nn.Linear
    action: eqx.nn.Linear
    rest: MLP
    absorbing: Float[Array, ""]
    """g of the absorbing state, for chains that have one."""
    counts: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, obs: Float[Array, " O"], action: Shaped[Array, " A"]) -> Float[Array, ""]:
        """g(s, a)."""
        first = self.state(obs) + self.action(_as_numbers(action, self.counts))
        return self.rest(ACTIVATIONS[self.rest.activation](first))[0]

    @property
    def hidden_weights(self) -> tuple[Float[Array, "J I"], ...]:
        """The matrices of the hidden layers."""
        first = jnp.concatenate([self.state.weight, self.action.weight], axis=1)
        return (first, *(layer.weight for layer in self.rest.layers[:-1]))

    def recentred(self) -> "ActionInDiscriminator":
        """The same with a last layer of zeros: a constant g on features that stay."""
        return replace(self, rest=_with_zero_head(self.rest), absorbing=jnp.zeros_like(self.absorbing))


class ActionOutDiscriminator(eqx.Module):
    """g(s, a) for a single choice, by a network of the state with one output for each action."""

    body: MLP
    absorbing: Float[Array, ""]
    """g of the absorbing state, for chains that have one."""

    def __call__(self, obs: Float[Array, " O"], action: Int[Array, "1"]) -> Float[Array, ""]:
        """g(s, a)."""
        return self.body(obs)[action[0]]

    @property
    def hidden_weights(self) -> tuple[Float[Array, "J I"], ...]:
        """The matrices of the hidden layers."""
        return tuple(layer.weight for layer in self.body.layers[:-1])

    def recentred(self) -> "ActionOutDiscriminator":
        """The same with a last layer of zeros: a constant g on features that stay."""
        return replace(self, body=_with_zero_head(self.body), absorbing=jnp.zeros_like(self.absorbing))


def init_discriminator_network(
    observation_size: int, actions: ActionKind, hidden_sizes: Sequence[int], key: Key, *, activation: str
) -> ActionInDiscriminator | ActionOutDiscriminator:
    """One output per action where there is a single choice; otherwise the action is part of the input."""
    absorbing = jnp.zeros((), jnp.float32)
    if len(actions.counts) == 1:
        sizes = (observation_size, *hidden_sizes, actions.counts[0])
        return ActionOutDiscriminator(init_mlp(sizes, key, activation=activation, head_gain=1.0), absorbing)
    action_size = sum(actions.counts) or actions.size
    sizes = (observation_size + action_size, *hidden_sizes, 1)
    first, *rest = init_mlp(sizes, key, activation=activation, head_gain=1.0).layers
    state = _linear(first.weight[:, :observation_size], first.bias)
    action = _linear(first.weight[:, observation_size:], None)
    return ActionInDiscriminator(state, action, MLP(tuple(rest), activation), absorbing, actions.counts)


def _as_numbers(action: Shaped[Array, " A"], counts: tuple[int, ...]) -> Float[Array, " E"]:
    """The action itself, or the one-hots of its components side by side."""
    if not counts:
        return action
    return jnp.concatenate([jax.nn.one_hot(action[i], count) for i, count in enumerate(counts)])


def _with_zero_head(network: MLP) -> MLP:
    *hidden, head = network.layers
    return replace(network, layers=(*hidden, jax.tree.map(jnp.zeros_like, head)))


def _orthogonal_linear(n_in: int, n_out: int, gain: Any, key: Key) -> eqx.nn.Linear:
    weight = jax.nn.initializers.orthogonal(gain)(key, (n_out, n_in), jnp.float32)
    return _linear(weight, jnp.zeros(n_out, jnp.float32))


def _linear(weight: Float[Array, "J I"], bias: Float[Array, " J"] | None) -> eqx.nn.Linear:
    n_out, n_in = weight.shape
    linear = eqx.nn.Linear(n_in, n_out, use_bias=bias is not None, key=jax.random.key(0))
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), linear, (weight, bias), is_leaf=_is_none)


def _is_none(leaf: Any) -> bool:
    return leaf is None
