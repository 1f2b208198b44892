"""Exact updates of every kind, on the aliased ledge and on random processes with one shared parameter."""

import dataclasses
import math
from typing import Any

import numpy as np

from ppo_dice.tabular import aliased_ledge, aliased_ledge_policy
from ppo_dice.tabular.improvement import UPDATES, PolicyFamily, compare, improve, random_problems

START = 0.02
_SIX_STATES_ALIKE = np.zeros(6, int)


def improvement(
    n_problems: int = 200, levels: int = 501, iterations: int = 60, ledge_levels: int = 999
) -> dict[str, Any]:
    """The paths on the ledge, and a summary of each update over the random processes."""
    go = np.arange(1, ledge_levels + 1) / (ledge_levels + 1)
    ledge = PolicyFamily.of(aliased_ledge(), np.stack([aliased_ledge_policy(float(p)) for p in go]))
    paths = {}
    for name, update in UPDATES.items():
        path = improve(ledge, update, aliased_ledge_policy(START), iterations)
        paths[name] = {
            "performance": path.performance.tolist(),
            "decreases": path.decreases,
            "worst_step": path.worst_step,
            "iterations": path.iterations_to(0.99),
        }
    problems = random_problems(n_problems, _SIX_STATES_ALIKE, np.linspace(0.01, 0.99, levels))
    return {
        "sizes": {"n_problems": n_problems, "levels": levels, "iterations": iterations, "start": START},
        "best": ledge.best,
        "paths": paths,
        "random": [_plain(dataclasses.asdict(row)) for row in compare(problems, UPDATES, iterations)],
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """None for a median that is infinite, which JSON does not know."""
    finite = math.isfinite(row["median_iterations"])
    return {**row, "median_iterations": row["median_iterations"] if finite else None}
