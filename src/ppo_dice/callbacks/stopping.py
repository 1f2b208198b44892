"""Ends of a run by what its evaluations show.

Seeds of a population are trained side by side, so the run goes on until every one of them is done.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ppo_dice.callbacks.contract import Callback, Training
from ppo_dice.config import check_types, require
from ppo_dice.errors import UserError


class StopByEvaluations(Callback, ABC):
    """Ends a run by the mean returns of its evaluations."""

    @abstractmethod
    def reason(self, histories: list[list[float]]) -> str | None:
        """Why the run should end, given the mean returns of every seed, of all evaluations so far."""

    def on_training_start(self, training: Training) -> None:
        """Ask for evaluations."""
        if not training.evaluates:
            raise UserError(
                f"{type(self).__name__} looks at evaluations; put an EvalCallback before it in the list."
            )

    def on_iteration(self, training: Training) -> None:
        """Look at the evaluations where there is a new one."""
        if training.evaluation is None:
            return
        means = [evaluation.mean_by_seed for evaluation in training.evaluations.values()]
        if reason := self.reason([[mean[seed] for mean in means] for seed in training.seeds]):
            training.stop(reason)


@dataclass
class StopTrainingOnRewardThreshold(StopByEvaluations):
    """Ends the run once every seed has reached a mean evaluation return, each in whichever evaluation."""

    reward_threshold: float
    """Mean return of an evaluation."""

    def __post_init__(self) -> None:
        check_types(self)
        is_number = self.reward_threshold == self.reward_threshold
        require(is_number, "reward_threshold", "a number", self.reward_threshold)

    def reason(self, histories: list[list[float]]) -> str | None:
        """Compare the best evaluation of every seed."""
        if min(map(max, histories)) < self.reward_threshold:
            return None
        return f"every seed has reached a mean evaluation return of {self.reward_threshold:g}"


@dataclass
class StopTrainingOnNoModelImprovement(StopByEvaluations):
    """Ends the run once no seed has got better for more than so many evaluations in a row."""

    max_no_improvement_evals: int
    """Evaluations in a row without a new best mean return that are still accepted of every seed."""
    min_evals: int = 0
    """Evaluations before counting starts."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("max_no_improvement_evals", "min_evals"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))

    def reason(self, histories: list[list[float]]) -> str | None:
        """Count how long ago every seed was at its best."""
        waiting = min(map(self._since_best, histories))
        if waiting <= self.max_no_improvement_evals:
            return None
        return f"no seed has improved for {waiting} evaluation{'' if waiting == 1 else 's'}"

    def _since_best(self, history: list[float]) -> int:
        since = len(history) - 1 - history.index(max(history))
        return min(since, max(len(history) - self.min_evals, 0))
