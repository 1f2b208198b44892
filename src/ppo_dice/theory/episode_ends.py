"""What g does at π' = π, where the divergence is zero, when the ends of episodes are treated inconsistently.

A treatment is a linear term and a residual, both linear in g [S, A], and the objective that of the paper:

    i·g − log E_w exp(Δg),    Δ = I − γP^π

The library's three chains are consistent: i = E_w Δ, so by Jensen no g gains anything. Masking V'_g(s') where
an episode ends makes the rows of Δ there lose their successor, and i and w know nothing of it. Algorithm 1,
literally, takes the first state alone for i, and counts all steps in w alike.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ppo_dice.tabular import TabularMDP
from ppo_dice.tabular.bounds import kl_divergence
from ppo_dice.types import AnyArray

GAMMA, LENGTH, FORWARD = 0.95, 8, 0.75
LEARNING_RATE = 3e-3
"""Ten times the policy's, as in the paper."""
_RECORDS = 200


class Treatment(NamedTuple):
    """One way to treat the ends of episodes, at π' = π; F = S · A."""

    initial: Float[AnyArray, "*B F"]
    residual: Float[AnyArray, "*B F F"]
    weight: Float[AnyArray, "*B F"]


def episode_ends(n_updates: int = 4000, seed: int = 0) -> dict[str, Any]:
    """The paths of the objective and of the level of g under Adam, one for each treatment."""
    mdp = corridor(LENGTH, GAMMA)
    pi = np.tile([1 - FORWARD, FORWARD], (mdp.n_states, 1))
    treatments = make_treatments(mdp, pi)
    start = 0.1 * np.random.default_rng(seed).standard_normal(mdp.n_states * mdp.n_actions)
    stacked = Treatment(*(np.stack(parts).astype(np.float32) for parts in zip(*treatments.values())))
    values, levels = _ascend(stacked, start.astype(np.float32), n_updates)
    kept = np.unique(np.linspace(0, n_updates - 1, _RECORDS).astype(int))
    long_run = mdp.visitation(pi, "restart", mdp.stationary(pi)).mu
    first = mdp.visitation(pi, "restart").mu
    return {
        "sizes": {"n_updates": n_updates, "learning_rate": LEARNING_RATE, "seed": seed, "gamma": GAMMA},
        "ending_share": _ending_share(mdp, pi),
        "literal_supremum": float(kl_divergence(first.ravel(), long_run.ravel())),
        "updates": kept.tolist(),
        "values": {name: values[number, kept].tolist() for number, name in enumerate(treatments)},
        "levels": {name: levels[number, kept].tolist() for number, name in enumerate(treatments)},
    }


def corridor(length: int, gamma: float) -> TabularMDP:
    """Episodes begin at one end, at a wall, and end behind the other; the actions are back and forward."""
    transition = np.zeros((length + 1, 2, length + 1))
    for state in range(length):
        transition[state, 0, max(state - 1, 0)] = transition[state, 1, state + 1] = 1.0
    transition[length, :, length] = 1.0
    return TabularMDP(transition, np.zeros((length + 1, 2)), np.eye(length + 1)[0], gamma, terminal=[length])


def make_treatments(mdp: TabularMDP, pi: Float[np.ndarray, "S A"]) -> dict[str, Treatment]:
    """The naive mask, Algorithm 1 literally, and the library's chains, for infinitely many steps."""
    visited = mdp.stationary(pi)
    restart, absorbing = mdp.chain("restart").transition, mdp.chain("absorbing").transition
    masked = np.where(mdp.is_terminal, 0.0, mdp.P)
    everywhere = mdp.visitation(pi, "restart", visited).d
    return {
        "naive mask": _treatment(mdp, pi, visited, masked, everywhere),
        "Algorithm 1": _treatment(mdp, pi, mdp.rho, restart, everywhere),
        "restart": _treatment(mdp, pi, visited, restart, everywhere),
        "absorbing": _treatment(mdp, pi, mdp.rho, absorbing, mdp.visitation(pi).d),
        "absorbing-all": _treatment(mdp, pi, visited, absorbing, mdp.visitation(pi, "absorbing", visited).d),
    }


def _treatment(
    mdp: TabularMDP,
    pi: Float[np.ndarray, "S A"],
    start: Float[np.ndarray, " S"],
    transition: Float[np.ndarray, "S A S"],
    weight: Float[np.ndarray, " S"],
) -> Treatment:
    successors = (transition[..., None] * mdp.policy(pi)).reshape(pi.size, pi.size)
    return Treatment(
        initial=((1 - mdp.gamma) * start[:, None] * mdp.policy(pi)).ravel(),
        residual=np.eye(pi.size) - mdp.gamma * successors,
        weight=(weight[:, None] * mdp.policy(pi)).ravel(),
    )


def _ending_share(mdp: TabularMDP, pi: Float[np.ndarray, "S A"]) -> float:
    """The share of steps with which an episode ends."""
    ending = mdp.P[..., mdp.is_terminal].sum(-1)
    return float((mdp.stationary(pi)[:, None] * pi * ending).sum())


def _ascend(
    treatments: Treatment, start: Float[np.ndarray, " F"], n_updates: int
) -> tuple[np.ndarray, np.ndarray]:
    """Objective and level of g before each update, [treatments, updates]."""
    optimizer = optax.adam(LEARNING_RATE)

    def objective(g: Float[Array, " F"], treatment: Treatment) -> Float[Array, ""]:
        partition = jax.nn.logsumexp(treatment.residual @ g, b=treatment.weight)
        return treatment.initial @ g - partition

    def path(treatment: Treatment) -> tuple[Array, Array]:
        def step(carry: Any, _: None) -> Any:
            g, state = carry
            value, slope = jax.value_and_grad(objective)(g, treatment)
            updates, state = optimizer.update(-slope, state)
            return (optax.apply_updates(g, updates), state), (value, treatment.weight @ g)

        return jax.lax.scan(step, (start, optimizer.init(jnp.asarray(start))), None, length=n_updates)[1]

    values, levels = jax.jit(jax.vmap(path))(treatments)
    return np.asarray(values, np.float64), np.asarray(levels, np.float64)
