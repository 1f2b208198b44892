"""How loose each lower bound of J(π') is, against the horizon 1/(1−γ).

The policies stay the same, in every state ‖π'(·|s) − π(·|s)‖₁ apart by the same distance; γ alone changes.
Every bound is L − ε·(something), and that something is what is recorded, beside what would have been needed:
(L − J')/ε. Only the bound on action probabilities contains the horizon.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ppo_dice.tabular import PerformanceBounds, TabularMDP, garnet, performance_bounds, river_swim
from ppo_dice.theory.pairs import BRANCHING, N_ACTIONS, N_STATES, mixed_policy

GAMMAS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
DISTANCE = 0.1
FAMILIES: dict[str, Callable[[float, int], TabularMDP]] = {
    "garnet": lambda gamma, seed: garnet(N_STATES, N_ACTIONS, BRANCHING, gamma, seed),
    "river_swim": lambda gamma, seed: river_swim(20, gamma),
}


def horizon(
    gammas: Sequence[float] = GAMMAS, n_pairs: int = 100, distance: float = DISTANCE, seed: int = 0
) -> dict[str, Any]:
    """Penalties in units of ε, for each family and γ a list over pairs of policies."""
    families = {
        name: [
            {"gamma": gamma, **_penalties(make, gamma, range(seed, seed + n_pairs), distance)}
            for gamma in gammas
        ]
        for name, make in FAMILIES.items()
    }
    return {"sizes": {"n_pairs": n_pairs, "distance": distance, "seed": seed}, "families": families}


def policies_apart(
    mdp: TabularMDP, distance: float, seed: int
) -> tuple[Float[np.ndarray, "S A"], Float[np.ndarray, "S A"]]:
    """π' and π with ‖π'(·|s) − π(·|s)‖₁ = `distance` in every state, or less where the way is shorter."""
    old, other = mixed_policy(mdp, seed), mixed_policy(mdp, seed + 1000)
    way = np.abs(other - old).sum(-1, keepdims=True)
    return old + np.minimum(distance / way, 1.0) * (other - old), old


def _penalties(
    make: Callable[[float, int], TabularMDP], gamma: float, seeds: range, distance: float
) -> dict[str, list[float]]:
    found = []
    for seed in seeds:
        mdp = make(gamma, seed)
        found.append(_in_units_of_epsilon(performance_bounds(mdp, *policies_apart(mdp, distance, seed))))
    return {name: [one[name] for one in found] for name in found[0]}


def _in_units_of_epsilon(bounds: PerformanceBounds) -> dict[str, float]:
    return {
        "needed": (bounds.surrogate - bounds.J_new) / bounds.epsilon,
        "span": (bounds.surrogate - bounds.by_span) / bounds.epsilon,
        "states": bounds.state_l1,
        "state_actions": bounds.state_action_l1,
        "kl": float(np.sqrt(2 * bounds.kl)),
        "actions": bounds.state_l1_by_actions,
    }
