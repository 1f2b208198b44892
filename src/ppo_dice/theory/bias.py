"""What an estimate is worth: the value that the fitted g has under the population objective.

The supremum of an objective of N samples is too large, for g fits the sample. The population objective has no
sample to fit, and every g gives a lower bound of the divergence there: estimate minus this value is what g
has memorised.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ppo_dice.tabular.estimation import each_environment, one_hot_features, tabular_policy
from ppo_dice.theory.estimators import as_lists, fit_rollouts
from ppo_dice.theory.pairs import N_ACTIONS, Pair, tabular_pair

STEPS = (512, 1024, 2048, 4096, 8192)
DISTANCES = (0.0, 0.03)
RIDGE, RIDGES = 1e-3, (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
FORMS = ("difference", "paper")

_FEATURES = one_hot_features(N_ACTIONS)


def bias(
    steps: Sequence[int] = STEPS,
    distances: Sequence[float] = DISTANCES,
    ridges: Sequence[float] = RIDGES,
    n_mdps: int = 3,
    n_rollouts: int = 8,
    seed: int = 0,
) -> dict[str, Any]:
    """Both forms on deterministic processes: against the number of steps, and at π' = π against the ridge."""
    by_steps, by_ridge = [], []
    for number in range(seed, seed + n_mdps):
        pairs = {kl: tabular_pair(number, kl, deterministic=True) for kl in distances}
        for n_steps in steps:
            for kl, pair in pairs.items():
                measured = _measure(pair, n_steps, n_rollouts, RIDGE, number)
                by_steps.append({"true": kl, "n_steps": n_steps, **measured})
        same = tabular_pair(number, 0.0, deterministic=True)
        for ridge in ridges:
            by_ridge.append({"ridge": ridge, **_measure(same, steps[0], n_rollouts, ridge, number)})
    sizes = {"n_mdps": n_mdps, "n_rollouts": n_rollouts, "seed": seed, "ridge": RIDGE, "few": steps[0]}
    return {"sizes": sizes, "by_steps": by_steps, "by_ridge": by_ridge}


def _measure(pair: Pair, n_steps: int, n_rollouts: int, ridge: float, seed: int) -> dict[str, Any]:
    """For each form, the estimate of every rollout and the population value of its g."""
    sampling, fitting = jax.random.split(jax.random.key(seed))
    rollouts = each_environment(pair.mdp.sample(pair.old, n_steps, sampling, n_rollouts))
    policies = tabular_policy(pair.new), tabular_policy(pair.old)
    fits = fit_rollouts(_FEATURES, FORMS, rollouts, policies, pair.mdp.gamma, fitting, ridge)
    return {
        form: {"estimates": as_lists(fit.value), "values": _population_values(pair, fit.weights)}
        for form, fit in fits.items()
    }


def _population_values(pair: Pair, weights: Float[Array, "N F"]) -> list[float]:
    """The last feature is that of an absorbing state, which is not there."""
    tables = np.asarray(weights, np.float64)[:, :-1].reshape(-1, *pair.old.shape)
    return [pair.objective.donsker_varadhan(g) for g in tables]
