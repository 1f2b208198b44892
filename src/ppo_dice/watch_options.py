"""Options of `train` about watching a run: evaluation while it goes on, its end, and tracking."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_dice.config import check_types, require
from ppo_dice.errors import UserError

if TYPE_CHECKING:
    from ppo_dice.callbacks import Callback, EvalCallback


@dataclass(frozen=True)
class WatchOptions:
    """How a run is watched."""

    eval_every: int | None = None
    """Evaluate every seed each time it has done this many more steps, and at the end; None does not."""
    eval_episodes: int = 10
    """Episodes per seed of each of these evaluations."""
    stop_at_return: float | None = None
    """End the run once every seed has reached this mean return in an evaluation; needs --eval-every."""
    track: bool = False
    """Show the run in Weights & Biases too, whose own variables WANDB_PROJECT, WANDB_MODE … are heeded."""

    def __post_init__(self) -> None:
        check_types(self)
        every = self.eval_every
        require(every is None or every >= 1, "eval_every", "at least 1, or None", every)
        require(self.eval_episodes >= 1, "eval_episodes", "at least 1", self.eval_episodes)
        if self.stop_at_return is not None and every is None:
            raise UserError("stop_at_return looks at evaluations; say how often to make them: --eval-every.")


def watching_callbacks(options: WatchOptions) -> "tuple[EvalCallback | None, list[Callback]]":
    """The callback that evaluates, if there is one, and all callbacks."""
    if options.eval_every is None:
        return None, []
    from ppo_dice.callbacks import EvalCallback, StopTrainingOnRewardThreshold

    evaluation = EvalCallback(eval_freq=options.eval_every, n_eval_episodes=options.eval_episodes)
    if options.stop_at_return is None:
        return evaluation, [evaluation]
    return evaluation, [evaluation, StopTrainingOnRewardThreshold(options.stop_at_return)]
