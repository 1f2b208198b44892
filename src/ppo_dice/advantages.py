"""Advantages and returns along one environment's stream of T steps; callers `vmap` over environments."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ppo_dice.types import Scalar


def gae(
    reward: Float[Array, " T"],
    value: Float[Array, " T"],
    next_value: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    ended: Bool[Array, " T"],
    gamma: Scalar,
    gae_lambda: Scalar,
) -> Float[Array, " T"]:
    """Generalised advantage estimation (Schulman et al. 2016) with the ends of episodes kept apart.

    δ_t = r_t + γ·V(s'_t)·[not terminated] − V(s_t)
    Â_t = δ_t + γλ·Â_{t+1}·[not ended]

    `next_value` is the value of the *true* next observation: at a time limit it bootstraps from the state in
    which the episode was cut off. The last step of the rollout bootstraps likewise. With λ = 1, Â + V is the
    discounted sum of rewards up to the end of the rollout, bootstrapped there.
    """
    continues = 1.0 - terminated.astype(reward.dtype)
    delta = reward + gamma * continues * next_value - value
    carry = gamma * gae_lambda * (1.0 - ended.astype(reward.dtype))
    return _linear_recurrence(carry[::-1], delta[::-1])[::-1]


def discounted_returns_so_far(
    reward: Float[Array, " T"],
    ended: Bool[Array, " T"],
    before: Scalar,
    gamma: Scalar,
) -> tuple[Float[Array, " T"], Float[Array, ""]]:
    """R_t = r_t + γ·R_{t−1}, restarted after the end of an episode; and the sum to carry on with.

    The variance of R is the scale by which rewards are normalised.
    """
    goes_on = 1.0 - ended.astype(reward.dtype)
    carry = gamma * jnp.concatenate([jnp.ones(1, reward.dtype), goes_on[:-1]])
    returns = _linear_recurrence(carry, reward.at[0].add(gamma * before))
    return returns, returns[-1] * goes_on[-1]


def standardize(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """Mean 0 and standard deviation 1."""
    return (values - jnp.mean(values)) / (jnp.std(values) + 1e-8)


def explained_variance(prediction: Float[Array, "..."], target: Float[Array, "..."]) -> Float[Array, ""]:
    """1 − Var(target − prediction)/Var(target): 1 is perfect, 0 no better than a constant."""
    return 1.0 - jnp.var(target - prediction) / (jnp.var(target) + 1e-8)


def _linear_recurrence(carry: Float[Array, " T"], inflow: Float[Array, " T"]) -> Float[Array, " T"]:
    """x_t = carry_t·x_{t−1} + inflow_t with x_{−1} = 0, in O(log T) vector operations."""

    def compose(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    return jax.lax.associative_scan(compose, (carry, inflow))[1]
