"""Ends of a run by what its evaluations show.

Seeds of a population are trained side by side, so the run goes on until every one of them is done.
"""

from dataclasses import dataclass

from ppo_dice.callbacks.contract import Callback, Training
from ppo_dice.config import check_types, require
from ppo_dice.errors import UserError


@dataclass
class StopTrainingOnRewardThreshold(Callback):
    """Ends the run once every seed has reached a mean evaluation return, each in whichever evaluation."""

    reward_threshold: float
    """Mean return of an evaluation."""

    def __post_init__(self) -> None:
        check_types(self)
        require(
            self.reward_threshold == self.reward_threshold,
            "reward_threshold",
            "a number",
            self.reward_threshold,
        )

    def on_training_start(self, training: Training) -> None:
        """Ask for evaluations."""
        _require_evaluations(training, self)

    def on_iteration(self, training: Training) -> None:
        """Compare the best evaluation of every seed."""
        if training.evaluation is None:
            return
        means = [evaluation.mean_by_seed for evaluation in training.evaluations.values()]
        if all(max(mean[seed] for mean in means) >= self.reward_threshold for seed in training.seeds):
            training.stop(f"every seed has reached a mean evaluation return of {self.reward_threshold:g}")


@dataclass
class StopTrainingOnNoModelImprovement(Callback):
    """Ends the run once no seed has got better for more than so many evaluations in a row."""

    max_no_improvement_evals: int
    """Evaluations in a row without a new best mean return that are still accepted of every seed."""
    min_evals: int = 0
    """Evaluations before counting starts."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("max_no_improvement_evals", "min_evals"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))

    def on_training_start(self, training: Training) -> None:
        """Ask for evaluations."""
        _require_evaluations(training, self)

    def on_iteration(self, training: Training) -> None:
        """Count how long ago every seed was at its best."""
        if training.evaluation is None:
            return
        means = [evaluation.mean_by_seed for evaluation in training.evaluations.values()]
        waiting = min(_since_best([mean[seed] for mean in means], self.min_evals) for seed in training.seeds)
        if waiting > self.max_no_improvement_evals:
            training.stop(f"no seed has improved in its last {waiting} evaluations")


def _since_best(values: list[float], min_evals: int) -> int:
    """Values after the first greatest one, those up to `min_evals` not counted."""
    return min(len(values) - 1 - values.index(max(values)), max(len(values) - min_evals, 0))


def _require_evaluations(training: Training, callback: Callback) -> None:
    if not training.evaluates:
        raise UserError(
            f"{type(callback).__name__} looks at evaluations; put an EvalCallback before it in the list."
        )
