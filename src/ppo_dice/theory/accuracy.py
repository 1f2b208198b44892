"""Estimated against true divergence, from near policies to far ones, on three kinds of system."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ppo_dice.tabular import sandwich
from ppo_dice.tabular.estimation import (
    each_environment,
    gaussian_policy,
    one_hot_features,
    polynomial_features,
    tabular_policy,
)
from ppo_dice.theory.estimators import ESTIMATORS, as_lists, fit_rollouts
from ppo_dice.theory.pairs import N_ACTIONS, OLD, SYSTEM, Pair, gaussian_pair, tabular_pair

DISTANCES = tuple(float(kl) for kl in np.geomspace(0.003, 0.3, 7))

_ONE_HOT, _POLYNOMIALS = one_hot_features(N_ACTIONS), polynomial_features(2)


def accuracy(
    distances: Sequence[float] = DISTANCES,
    n_mdps: int = 4,
    n_rollouts: int = 6,
    n_steps: int = 2048,
    seed: int = 0,
) -> dict[str, Any]:
    """Every estimate of every rollout beside the true KL and the ends of its sandwich, point by point."""
    key = jax.random.key(seed)
    points = []
    for kind in ("deterministic", "stochastic"):
        for kl in distances:
            for number in range(seed, seed + n_mdps):
                pair = tabular_pair(number, kl, deterministic=kind == "deterministic")
                key, sampling = jax.random.split(key)
                points.append({"system": kind, **_tabular_point(pair, n_rollouts, n_steps, sampling)})
    for kl in distances:
        key, sampling = jax.random.split(key)
        points.append({"system": "gaussian", **_gaussian_point(kl, n_mdps * n_rollouts, n_steps, sampling)})
    sizes = {"n_mdps": n_mdps, "n_rollouts": n_rollouts, "n_steps": n_steps, "seed": seed}
    return {"sizes": sizes, "points": points}


def _tabular_point(pair: Pair, n_rollouts: int, n_steps: int, key: jax.Array) -> dict[str, Any]:
    mdp, (sampling, fitting) = pair.mdp, jax.random.split(key)
    rollouts = each_environment(mdp.sample(pair.old, n_steps, sampling, n_rollouts))
    policies = tabular_policy(pair.new), tabular_policy(pair.old)
    fits = fit_rollouts(_ONE_HOT, tuple(ESTIMATORS), rollouts, policies, mdp.gamma, fitting)
    ends = sandwich(mdp, pair.new, pair.old, chain="restart", initial=mdp.stationary(pair.old))
    return {
        "true": ends.kl,
        "lower": ends.lower,
        "upper": ends.upper,
        "estimates": {name: as_lists(fit.value) for name, fit in fits.items()},
    }


def _gaussian_point(kl: float, n_rollouts: int, n_steps: int, key: jax.Array) -> dict[str, Any]:
    new, (sampling, fitting) = gaussian_pair(kl), jax.random.split(key)
    rollouts = each_environment(SYSTEM.sample(OLD, n_steps, sampling, n_rollouts))
    policies = gaussian_policy(new), gaussian_policy(OLD)
    fits = fit_rollouts(_POLYNOMIALS, tuple(ESTIMATORS), rollouts, policies, SYSTEM.gamma, fitting)
    parts = SYSTEM.divergence(new, OLD)
    return {
        "true": parts.total,
        "lower": parts.action,
        "upper": parts.action / (1 - SYSTEM.gamma),
        "estimates": {name: as_lists(fit.value) for name, fit in fits.items()},
    }
