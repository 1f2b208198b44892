"""Films of policies: episodes of one member with frozen statistics, drawn by Gymnasium."""

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error as gymnasium_error

from ppo_dice.config import FilmConfig
from ppo_dice.envs.contract import EnvSpec, refuse_other_spaces
from ppo_dice.envs.drawing import headless
from ppo_dice.envs.filmable import cannot_be_filmed, make_filmable
from ppo_dice.envs.gymnasium_backend import GymnasiumEnvironments
from ppo_dice.envs.gymnasium_make import EnvLike
from ppo_dice.envs.seeding import environment_seeds
from ppo_dice.errors import UserError
from ppo_dice.evaluation import Evaluation, evaluate
from ppo_dice.film_encoder import FilmEncoder, check_film_path
from ppo_dice.population import stack
from ppo_dice.types import Actor

MAX_FPS = 30
"""A film shows as many steps as keep it in real time at no more than these frames per second."""
DEFAULT_RENDER_FPS = 30
"""What a second is, in steps, where the environment does not say."""


@dataclass(frozen=True)
class Film:
    """What was filmed."""

    path: Path
    frames: int
    fps: float
    evaluation: Evaluation
    """Returns and lengths of the episodes."""
    cut: tuple[bool, ...]
    """By episode: whether it was cut at `max_steps`, before its end."""
    engine: str
    trained_on: str

    @property
    def seconds(self) -> float:
        """How long the film is."""
        return self.frames / self.fps

    @property
    def note(self) -> str | None:
        """A sentence where the film's engine is not the one that trained the policy."""
        if self.engine == self.trained_on:
            return None
        return f"filmed on {self.engine}, but trained on {self.trained_on}: returns may differ"


def make_film(
    path: Path,
    actor: Actor,
    seed: int,
    env: EnvLike,
    env_kwargs: Mapping[str, Any],
    trained: EnvSpec,
    config: FilmConfig,
) -> Film:
    """Film episodes of one member; the file is there when it is whole, and not before."""
    check_film_path(path)
    starts = environment_seeds(seed, config.episodes, segment=config.env_seed, purpose="evaluate")
    with headless(), _written_at_once(path) as unfinished:
        made = make_filmable(env, env_kwargs)
        try:
            every, fps = _pace(made, config)
            with FilmEncoder(unfinished, fps) as encoder:
                camera = _Camera(made, starts, encoder.write, every=every, max_steps=config.max_steps)
                pool = GymnasiumEnvironments(camera, starts[:1])
                refuse_other_spaces(pool.spec, trained)
                evaluation = evaluate(
                    stack([actor]), (seed,), pool, config.episodes, deterministic=not config.stochastic
                )
        finally:
            if not isinstance(env, gymnasium.Env):
                made.close()
    return Film(path, encoder.frames, fps, evaluation, tuple(camera.cut), pool.spec.engine, trained.engine)


class _Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes the frames of a given number of episodes, each from its own seed, and nothing after them."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        seeds: Iterable[int],
        write: Callable[[np.ndarray], None],
        *,
        every: int,
        max_steps: int,
    ) -> None:
        super().__init__(env)
        self.cut: list[bool] = []
        self._seeds, self._write = iter(seeds), write
        self._every, self._max_steps = every, max_steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode; the pool's own seed gives way to that of the episode."""
        self._steps = 0
        start = next(self._seeds, None)
        begun = self.env.reset(seed=start, options=options)
        if start is not None:
            self._take()
        return begun

    def step(self, action: Any) -> Any:
        """Take every so many steps a frame, and always one of the end."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        over = terminated or truncated
        cut = not over and self._steps >= self._max_steps
        if over or cut or self._steps % self._every == 0:
            self._take()
        if over or cut:
            self.cut.append(cut)
        return observation, reward, terminated, truncated or cut, info

    def _take(self) -> None:
        try:
            frame: Any = self.env.render()
        except gymnasium_error.DependencyNotInstalled as missing:
            raise UserError(f"The frames cannot be drawn: {missing}.") from None
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.shape[2:] != (3,):
            raise cannot_be_filmed(self.env.unwrapped)
        self._write(frame)


def _pace(env: gymnasium.Env[Any, Any], config: FilmConfig) -> tuple[int, float]:
    """Steps from frame to frame, and frames per second."""
    real = float(env.metadata.get("render_fps") or DEFAULT_RENDER_FPS)
    every = math.ceil(real / MAX_FPS) if config.every is None else config.every
    return every, real / every if config.fps is None else config.fps


@contextmanager
def _written_at_once(path: Path) -> Iterator[Path]:
    """Where to write a film meanwhile; it takes its name, and an earlier one's place, when it is whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _unwritable(path, error) from None
    with folder as place:
        yield Path(place, path.name)
        try:
            os.replace(Path(place, path.name), path)
        except OSError as error:
            raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"The film cannot be written as {path}: {error.strerror or error}.")
