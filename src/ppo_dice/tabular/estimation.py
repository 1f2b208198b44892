"""The library's own estimators, on the systems whose answers are known.

What training calls (`chains`, `divergence`, `discriminator`) is called here with a g that is linear: in
one-hot vectors of state and action for a finite process, in polynomials for a linear-Gaussian one.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from ppo_dice.chains import (
    Chain,
    Choices,
    Discriminator,
    Rows,
    Transitions,
    choose_actions,
    evaluate_rows,
    transitions,
)
from ppo_dice.distributions import Categorical, DiagonalGaussian, PolicyGradient, gaussian_noise, gumbel_noise
from ppo_dice.linear_discriminator import conditional_mean
from ppo_dice.tabular.linear_gaussian import LinearPolicy, Triple
from ppo_dice.types import Key, Rollout, Scalar

REGRESSION_RIDGE = 1e-6


class TabularPolicy(eqx.Module):
    """π [S, A] as a function of one-hot observations, by its logits."""

    logits: Float[Array, "S A"]

    @property
    def counts(self) -> tuple[int, ...]:
        """A single choice."""
        return (self.logits.shape[1],)

    def __call__(self, obs: Float[Array, " S"]) -> Categorical:
        """π(·|s)."""
        return Categorical((obs @ self.logits)[None])

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Gumbel noise."""
        return gumbel_noise(key, (*shape, 1, self.logits.shape[1]))


class LinearGaussianPolicy(eqx.Module):
    """(K, b₀, σ) as a function of observations."""

    parameters: Float[Array, "3"]

    @property
    def counts(self) -> tuple[int, ...]:
        """None, for actions are continuous."""
        return ()

    def __call__(self, obs: Float[Array, " 1"]) -> DiagonalGaussian:
        """N(K s + b₀, σ²)."""
        gain, bias, std = self.parameters
        return DiagonalGaussian(gain * obs + bias, jnp.log(std)[None])

    def noise(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Standard normal noise."""
        return gaussian_noise(key, (*shape, 1))


def tabular_policy(pi: ArrayLike) -> TabularPolicy:
    """π [S, A], without zeros."""
    return TabularPolicy(jnp.log(jnp.asarray(pi, jnp.float32)))


def gaussian_policy(parameters: Triple | LinearPolicy | Float[Array, "3"]) -> LinearGaussianPolicy:
    """(K, b₀, σ)."""
    return LinearGaussianPolicy(jnp.asarray(parameters, jnp.float32))


def one_hot_features(n_actions: int) -> Discriminator:
    """Φ(s, a): one for each state with each action, and a last one for the absorbing state, here 0."""

    def features(state: Float[Array, " S"], action: Int[Array, " 1"]) -> Float[Array, " F"]:
        pair = jnp.outer(state, jax.nn.one_hot(action[0], n_actions)).ravel()
        return jnp.append(pair, 0.0)

    return features


def polynomial_features(degree: int) -> Discriminator:
    """Φ(s, a): sⁱaʲ for 0 < i + j ≤ degree. Linear dynamics map the family to itself and a constant."""
    powers = [(i, k - i) for k in range(1, degree + 1) for i in range(k + 1)]

    def features(state: Float[Array, " 1"], action: Float[Array, " 1"]) -> Float[Array, " F"]:
        return jnp.stack([state[0] ** i * action[0] ** j for i, j in powers])

    return features


def feature_rows(
    features: Discriminator,
    rollout: Rollout,
    new: Any,
    old: Any,
    key: Key,
    gamma: Scalar,
    *,
    chain: Chain = "restart",
    n_noises: int = 32,
    sampled: bool = False,
    average_next: bool = False,
) -> Rows:
    """What `linear_discriminator.fit_linear` needs of one rollout and two policies.

    In the absorbing chains the last feature is that of the absorbing state. `average_next` regresses the
    features of the successor on those of the step, which is what stochastic dynamics need.
    """
    steps = transitions(rollout, gamma, chain)
    n_features = jax.eval_shape(features, steps.obs[0], steps.action[0]).shape[0]
    absorbing = jnp.zeros(n_features).at[-1].set(0.0 if chain == "restart" else 1.0)
    here, there = new.noise(key, (2, len(steps.obs), n_noises))
    return evaluate_rows(
        features,
        absorbing,
        steps,
        choices_of(steps, new, old, (here, there), "score-printed" if sampled else "auto"),
        gamma,
        average_next=partial(conditional_mean, ridge=REGRESSION_RIDGE) if average_next else None,
    )


def choices_of(
    steps: Transitions, new: Any, old: Any, noise: tuple[Any, Any], gradient: PolicyGradient = "auto"
) -> Choices:
    """`chains.choose_actions` with the policies as functions of the observation."""
    here, there = jax.vmap(new)(steps.obs), jax.vmap(new)(steps.next_obs)
    return choose_actions(steps.action, here, jax.vmap(old)(steps.obs), there, noise, gradient)


def each_environment(rollout: Rollout) -> Rollout:
    """A rollout of N environments as N rollouts of one, along a new first axis."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(jnp.asarray(leaf), 1, 0)[:, :, None], rollout)
