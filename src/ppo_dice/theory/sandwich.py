"""The certificate E_{d'}KL(π'‖π) ≤ KL(μ'‖μ) ≤ E_{d'}KL(π'‖π)/(1−γ), and what becomes of it under d."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ppo_dice.tabular import Sandwich, garnet, random_policy, sandwich
from ppo_dice.theory.horizon import GAMMAS

ENDS = ("lower", "upper", "plain_lower", "plain_upper", "safe_upper")
NEAR = 0.1
"""The share of the way from π to another policy at which π' is near."""
QUANTILES = (0.1, 0.5, 0.9)
_ROUNDING = 1e-12


def sandwich_ends(gammas: Sequence[float] = GAMMAS, n_pairs: int = 300, seed: int = 0) -> dict[str, Any]:
    """For random policies and near ones, by γ: each end divided by KL(μ'‖μ), and how often it is wrong."""
    rows: dict[str, list[dict[str, Any]]] = {"far": [], "near": []}
    for pair, step in (("far", 1.0), ("near", NEAR)):
        for gamma in gammas:
            cases = [_case(gamma, step, number) for number in range(seed, seed + n_pairs)]
            rows[pair].append({"gamma": gamma, **{end: _summary(end, cases) for end in ENDS}})
    sizes = {"n_pairs": n_pairs, "near": NEAR, "seed": seed}
    return {"sizes": sizes, "quantiles": list(QUANTILES), "rows": rows}


def _case(gamma: float, step: float, seed: int) -> Sandwich:
    mdp = garnet(6, 3, 3, gamma, seed)
    old, other = random_policy(mdp, 2 * seed + 1), random_policy(mdp, 2 * seed + 2)
    return sandwich(mdp, (1 - step) * old + step * other, old)


def _summary(end: str, cases: list[Sandwich]) -> dict[str, Any]:
    share = np.array([getattr(case, end) / case.kl for case in cases])
    wrong = share > 1 + _ROUNDING if end.endswith("lower") else share < 1 - _ROUNDING
    return {"failing": float(wrong.mean()), "quantiles": np.quantile(share, QUANTILES).tolist()}
