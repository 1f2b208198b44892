"""What maps one observation to numbers. Every leaf of every Module is an array; callers `vmap`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt8

from ppo_dice.config import Convolutions, PPOConfig
from ppo_dice.distributions import (
    IMPOSSIBLE,
    Categorical,
    DiagonalGaussian,
    Distribution,
    gaussian_noise,
    gumbel_noise,
)
from ppo_dice.images import CNN, ROWS_AT_ONCE, ImageView, image_view, init_cnn, split_row
from ppo_dice.types import ActionKind, ImageKind, Key, ObservationKind, Scalar

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

    def __call__(self, obs: Shaped[Array, " V"]) -> Distribution:
        """π(·|s)."""
        ...

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Noise for `shape` many actions, as the distribution's `sample` takes it."""
        ...


class Encoder(eqx.Module):
    """Observations of images and numbers → features of the images, and the numbers."""

    cnns: tuple[CNN, ...]
    size: int = eqx.field(static=True)
    """Of the numbers."""

    @property
    def n_features(self) -> int:
        """Length of what comes out."""
        return sum(cnn.n_features for cnn in self.cnns) + self.size

    def __call__(self, obs: UInt8[Array, "B V"]) -> Float[Array, "B F"]:
        """The features of every row."""
        images, numbers = split_row(obs, [cnn.view.size for cnn in self.cnns])
        return jnp.concatenate([*(cnn(image) for cnn, image in zip(self.cnns, images)), numbers], axis=1)

    def where(self, wanted: Bool[Array, " B"], obs: UInt8[Array, "B V"]) -> Float[Array, "B F"]:
        """The features of the rows that are wanted, and zeros for most others, which cost nothing."""
        padded = -(-len(wanted) // ROWS_AT_ONCE) * ROWS_AT_ONCE
        order = jnp.argsort(~wanted, stable=True)
        place = jnp.pad(order, (0, padded - len(order)), mode="edge").reshape(-1, ROWS_AT_ONCE)
        nothing = jnp.zeros((ROWS_AT_ONCE, self.n_features), jnp.float32)

        def some(rows: Int[Array, " M"]) -> Float[Array, "M F"]:
            return jax.lax.cond(jnp.any(wanted[rows]), lambda: self(obs[rows]), lambda: nothing)

        features = jax.lax.map(some, place).reshape(padded, -1)[: len(order)]
        return jnp.zeros_like(features).at[order].set(features)


def init_encoder(observation: ObservationKind, config: PPOConfig, key: Key) -> Encoder:
    """A network for each image."""
    keys = jax.random.split(key, len(observation.images))
    views = image_views(observation, config)
    cnns = (init_cnn(view, _convolutions(view.image, config), key) for view, key in zip(views, keys))
    return Encoder(tuple(cnns), observation.size)


def n_features(observation: ObservationKind, config: PPOConfig) -> int:
    """What policy, value and discriminator read: features of images, and numbers."""
    return observation.size + sum(_convolutions(image, config).features for image in observation.images)


def image_views(observation: ObservationKind, config: PPOConfig) -> tuple[ImageView, ...]:
    """How the networks of this config see the images of an observation."""
    return tuple(image_view(image, _convolutions(image, config)) for image in observation.images)


def _convolutions(image: ImageKind, config: PPOConfig) -> Convolutions:
    return config.convolutions(image.height, image.width)


class PixelPolicy(eqx.Module):
    """A policy that reads features of images."""

    encoder: Encoder
    head: Policy

    @property
    def counts(self) -> tuple[int, ...]:
        """Those of the head."""
        return self.head.counts

    def __call__(self, obs: UInt8[Array, " V"]) -> Distribution:
        """π(·|s) of a single state; for many, `act_in_rows` is quicker."""
        return self.head(self.encoder(obs[None])[0])

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """That of the head."""
        return self.head.noise(key, shape)


class NoEncoder(eqx.Module):
    """Numbers are their own features."""

    def __call__(self, obs: Float[Array, "B O"]) -> Float[Array, "B O"]:
        """The rows as they are."""
        return obs

    def where(self, wanted: Bool[Array, " B"], obs: Float[Array, "B O"]) -> Float[Array, "B O"]:
        """The rows as they are."""
        return obs


def encoder_and_head(policy: Policy) -> tuple[Encoder | NoEncoder, Policy]:
    """What reads observations, and the policy that reads its features."""
    return (policy.encoder, policy.head) if isinstance(policy, PixelPolicy) else (NoEncoder(), policy)


def act_in_rows(policy: Policy, obs: Shaped[Array, "B V"]) -> Distribution:
    """π(·|s) in every row."""
    encoder, head = encoder_and_head(policy)
    return jax.vmap(head)(encoder(obs))


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
    def hidden_weights(self) -> tuple[Float[Array, "_ _"], ...]:
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
    def hidden_weights(self) -> tuple[Float[Array, "_ _"], ...]:
        """The matrices of the hidden layers."""
        return tuple(layer.weight for layer in self.body.layers[:-1])

    def recentred(self) -> "ActionOutDiscriminator":
        """The same with a last layer of zeros: a constant g on features that stay."""
        return replace(self, body=_with_zero_head(self.body), absorbing=jnp.zeros_like(self.absorbing))


class PixelDiscriminator(eqx.Module):
    """g(s, a) by a network of features of images: those of its own encoder, or the policy's."""

    encoder: Encoder | None
    head: "ActionInDiscriminator | ActionOutDiscriminator"

    @property
    def absorbing(self) -> Float[Array, ""]:
        """g of the absorbing state."""
        return self.head.absorbing

    @property
    def hidden_weights(self) -> tuple[Float[Array, "_ _"], ...]:
        """The matrices of the hidden layers; a kernel is one for each filter in a row."""
        cnns = self.encoder.cnns if self.encoder is not None else ()
        kernels = (kernel.reshape(-1, kernel.shape[-1]).T for cnn in cnns for kernel in cnn.kernels)
        return (*kernels, *(cnn.dense for cnn in cnns), *self.head.hidden_weights)

    def recentred(self) -> "PixelDiscriminator":
        """The same with a last layer of zeros: a constant g on features that stay."""
        return replace(self, head=self.head.recentred())


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
