"""The laboratory: what the theory says, and what the estimators do, shown on systems whose answers are known.

Every experiment is a function of its sizes that returns plain data. `run` does all of them and writes one
JSON file; `ppo_dice.reports.theory` makes the pictures and the page of it.
"""

from ppo_dice.theory.laboratory import EXPERIMENTS, RESULTS_FILE, check_free, run

__all__ = ["EXPERIMENTS", "RESULTS_FILE", "check_free", "run"]
