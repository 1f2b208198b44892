"""Films of one member while training goes on."""

import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gymnasium

from ppo_dice.config import require
from ppo_dice.errors import UserError
from ppo_dice.run_folder import VIDEO_FOLDER
from ppo_dice.training import Iteration
from ppo_dice.video import Film


@runtime_checkable
class CanBeFilmed(Protocol):
    """The part of an agent that films need."""

    env: Any

    def watch(self, path: str | Path, *, seed: int | None = None, **settings: Any) -> Film:
        """Film episodes of one seed."""
        ...


class FilmCapture:
    """Films an episode of one seed after each iteration that reaches a multiple of `every` steps.

    The environment is one of its own, and training stays as it is, bit for bit. A film that fails during the
    run is reported on standard error, and the run goes on.
    """

    def __init__(self, every: int, *, seed: int | None = None, folder: str | Path | None = None) -> None:
        require(every >= 1, "the number of steps between films", "at least 1", every)
        self._every, self._seed = every, seed
        self._given_folder = None if folder is None else Path(folder)
        self.films: list[Film] = []

    def start(self, agent: CanBeFilmed, run: Path | None) -> None:
        """Prove by a film of one step that films can be made here, before any work starts."""
        if isinstance(agent.env, gymnasium.Env):
            raise UserError(
                "The one environment object is used for training and cannot be filmed meanwhile; "
                "give a callable that makes environments."
            )
        if self._given_folder is None and run is None:
            raise UserError("Films of a run go into its folder; name it with out=….")
        self._folder = self._given_folder or Path(run or "", VIDEO_FOLDER)
        with tempfile.TemporaryDirectory() as folder:
            agent.watch(Path(folder, "proof.mp4"), seed=self._seed, max_steps=1)

    def after(self, agent: CanBeFilmed, iteration: Iteration) -> None:
        """Film where it is time to."""
        before = iteration.env_steps - iteration.steps
        if iteration.env_steps // self._every == before // self._every:
            return
        path = self._folder / f"step_{iteration.env_steps}.mp4"
        try:
            self.films.append(agent.watch(path, seed=self._seed))
        except (UserError, OSError) as error:
            print(f"no film after step {iteration.env_steps:,}: {error}", file=sys.stderr)
