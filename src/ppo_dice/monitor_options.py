"""Options of `train` about monitoring a run: evaluation while it goes on, its end, films, and tracking."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_dice.config import check_types, require
from ppo_dice.errors import UserError

if TYPE_CHECKING:
    from ppo_dice.callbacks import Callback

FILMS_PER_RUN = 10
"""Films that are made where nobody says how often."""


@dataclass(frozen=True)
class MonitorOptions:
    """How a run is monitored."""

    eval_every: int | None = None
    """Evaluate every seed each time it has done this many more steps, and at the end; None does not."""
    eval_episodes: int = 10
    """Episodes per seed of each of these evaluations."""
    stop_at_return: float | None = None
    """End the run once every seed has reached this mean return in an evaluation; needs --eval-every."""
    capture_video: bool = False
    """Film an episode now and then, into the folder videos of the run's folder."""
    capture_every: int | None = None
    """Steps per seed between films; a tenth of the run where it is not given."""
    capture_seed: int | None = None
    """Seed that is filmed; the first where it is not given."""
    track: bool = False
    """Show the run in Weights & Biases too, whose own variables WANDB_PROJECT, WANDB_MODE … are heeded."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("eval_every", "capture_every"):
            every = getattr(self, name)
            require(every is None or every >= 1, name, "at least 1, or None", every)
        require(self.eval_episodes >= 1, "eval_episodes", "at least 1", self.eval_episodes)
        if self.stop_at_return is not None and self.eval_every is None:
            raise UserError("stop_at_return looks at evaluations; say how often to make them: --eval-every.")
        if not self.capture_video and (self.capture_every is not None or self.capture_seed is not None):
            raise UserError("--capture-every and --capture-seed are for --capture-video, which is not given.")


def monitoring_callbacks(options: MonitorOptions, total_timesteps: int) -> "list[Callback]":
    """The callbacks that the options ask for."""
    from ppo_dice.callbacks import EvalCallback, FilmCallback, StopTrainingOnRewardThreshold

    callbacks: list[Callback] = []
    if options.eval_every is not None:
        callbacks.append(EvalCallback(eval_freq=options.eval_every, n_eval_episodes=options.eval_episodes))
    if options.stop_at_return is not None:
        callbacks.append(StopTrainingOnRewardThreshold(options.stop_at_return))
    if options.capture_video:
        every = options.capture_every or max(1, total_timesteps // FILMS_PER_RUN)
        callbacks.append(FilmCallback(every, seed=options.capture_seed))
    return callbacks
