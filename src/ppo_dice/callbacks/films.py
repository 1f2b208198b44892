"""Films of one seed while training goes on."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import gymnasium

from ppo_dice.callbacks.contract import Callback, Training, chosen_folder
from ppo_dice.config import check_types, require
from ppo_dice.errors import UserError
from ppo_dice.run_folder import VIDEO_FOLDER
from ppo_dice.video import Film


@dataclass
class FilmCallback(Callback):
    """Films an episode of one seed now and then.

    A film is made after the iteration that reaches a multiple of `every` steps. The environment is one of its
    own, and training stays as it is, bit for bit. A film that fails during the run is reported on standard
    error, and the run goes on.
    """

    every: int
    """Steps per seed between films."""
    seed: int | None = None
    """Who is filmed; without one, the first seed."""
    folder: str | Path | None = None
    """Where the films go; without one, the folder `videos` of the run's folder."""

    def __post_init__(self) -> None:
        check_types(self)
        require(self.every >= 1, "every", "at least 1", self.every)
        self.films: list[Film] = []

    def on_training_start(self, training: Training) -> None:
        """Prove by a film of one step that films can be made here."""
        if isinstance(training.agent.env, gymnasium.Env):
            raise UserError(
                "The one environment object is used for training and cannot be filmed meanwhile; "
                "give a callable that makes environments."
            )
        run_folder = None if training.folder is None else training.folder / VIDEO_FOLDER
        folder = chosen_folder(self.folder, run_folder, "films")
        if folder is None:
            raise UserError("Films of a run go into its folder; name it with out=….")
        self._folder = folder
        self._seed = training.seeds[0] if self.seed is None else self.seed
        self.films = []
        with tempfile.TemporaryDirectory() as place:
            training.agent.watch(Path(place, "proof.mp4"), seed=self._seed, max_steps=1)

    def on_iteration(self, training: Training) -> None:
        """Film where it is time to, and show the film where the run is tracked."""
        if not training.reaches_multiple_of(self.every):
            return
        path = self._folder / f"seed_{self._seed}_step_{training.env_steps}.mp4"
        try:
            film = training.agent.watch(path, seed=self._seed)
        except (UserError, OSError) as error:
            print(f"no film after step {training.env_steps:,}: {error}", file=sys.stderr)
            return
        self.films.append(film)
        training.show_video("film", film.path, self._seed)
