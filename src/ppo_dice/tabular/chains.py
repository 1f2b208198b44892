"""The linear algebra of a finite Markov chain under a policy.

Everything is a sum of non-negative terms: a state that is never reached has a visitation of exactly zero,
and not of 1e-18 with either sign, so that missing support is seen for what it is.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

_NEGLIGIBLE = 1e-18
_LONG_RUN_DOUBLINGS = 64


class Chain(NamedTuple):
    """What follows what, where it begins, and how far the future counts."""

    transition: Float[np.ndarray, "S A S"]
    initial: Float[np.ndarray, " S"]
    gamma: float


class Visitation(NamedTuple):
    """Discounted and normalised: d(s) = (1−γ) Σ γᵗ Pr(s_t = s), and μ(s,a) = d(s) π(a|s)."""

    d: Float[np.ndarray, " S"]
    mu: Float[np.ndarray, "S A"]


def expectation(weight: Float[np.ndarray, "..."], value: Float[np.ndarray, "..."]) -> Any:
    """Σ weight · value over the last axis, where weights of zero silence even infinite values."""
    with np.errstate(invalid="ignore"):
        return np.where(weight > 0, weight * value, 0.0).sum(-1)


def state_transition(chain: Chain, pi: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S S"]:
    """P_π(s'|s) = Σ_a π(a|s) P(s'|s,a)."""
    return np.einsum("sa,sat->st", pi, chain.transition)


def visitation(chain: Chain, pi: Float[np.ndarray, "S A"]) -> Visitation:
    """d = (1−γ)(I − γP_πᵀ)⁻¹ρ and μ = d·π."""
    occupancy = chain.initial @ _resolvent(chain, pi)
    d = occupancy / occupancy.sum()  # the sum is 1/(1−γ), but for rounding
    return Visitation(d, d[:, None] * pi)


def discounted_sum(
    chain: Chain, pi: Float[np.ndarray, "S A"], reward: Float[np.ndarray, "S A"]
) -> Float[np.ndarray, "S A"]:
    """(I − γP^π)⁻¹ f: the Q-function of π where f is the reward, which may be infinite."""
    state_value = expectation(_resolvent(chain, pi), expectation(pi, reward))
    return reward + expectation(chain.gamma * chain.transition, state_value)


def long_run(chain: Chain, pi: Float[np.ndarray, "S A"]) -> Float[np.ndarray, " S"]:
    """Where the chain is found in the long run, on average over time and whatever its period.

    The lazy chain (I + P)/2 visits the same states in the same shares and has no period: its powers converge.
    """
    power = (np.eye(len(pi)) + state_transition(chain, pi)) / 2
    for _ in range(_LONG_RUN_DOUBLINGS):
        power = power @ power
        power /= power.sum(1, keepdims=True)  # or rounding, doubled 64 times, would win
    return chain.initial @ power


def _resolvent(chain: Chain, pi: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S S"]:
    """Σ γᵗP_πᵗ = (I − γP_π)⁻¹, by doubling: Σ_{t<2n} Mᵗ = Σ_{t<n} Mᵗ (I + Mⁿ)."""
    power, n_states = chain.gamma * state_transition(chain, pi), len(pi)
    total, n_terms = np.eye(n_states), 1
    # At least as many terms as there are states, however small: the last state may be that far away.
    while n_terms < n_states or chain.gamma**n_terms > _NEGLIGIBLE:
        total += total @ power
        power, n_terms = power @ power, 2 * n_terms
    return total
