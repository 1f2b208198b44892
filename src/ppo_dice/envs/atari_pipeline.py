"""The paper's pipeline for Atari, around emulators of whichever library.

The emulators hold an action for some frames and give the maximum of the last two, small and grey; they begin
a game with no-ops. All that Baselines' wrappers do above that is here, and so the same for all:

* a lost life ends the training episode, but not the game: after one no-op the next episode goes on in it;
* an episode begins with FIRE and then the third action, in games that have FIRE;
* what is seen is the stack of the last frames, at the beginning of an episode the first one repeated;
* learning gets the sign of the reward, the record gets the points, of whole games;
* a game is cut after a number of steps, which is a truncation.

What is won in the steps that no policy chose counts as won in the step after them.
"""

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Bool, Float64, Int, Shaped, UInt8

from ppo_dice.atari_games import WITHOUT_FIRE_RESET
from ppo_dice.atari_settings import FRAME_STACK, SCREEN, AtariSettings
from ppo_dice.envs.contract import EnvSpec, Step
from ppo_dice.envs.spaces import observation_flattener

_NOOP, _FIRE, _THIRD = 0, 1, 2
"""Places in a game's list of actions, wherever FIRE is one of them."""


class Seen(NamedTuple):
    """What `k` emulators answer."""

    frame: UInt8[np.ndarray, "k height width"]
    points: Float64[np.ndarray, " k"]
    lives: Int[np.ndarray, " k"]
    game_over: Bool[np.ndarray, " k"]


@runtime_checkable
class Emulators(Protocol):
    """Copies of one game, of which some or all can be stepped."""

    n_actions: int
    backend: str
    engine: str

    def start(self) -> Seen:
        """Begin a game in every copy, each on its own seed."""
        ...

    def restart(self, copies: Int[np.ndarray, " k"]) -> Seen:
        """Begin another game in these copies."""
        ...

    def step(self, copies: Int[np.ndarray, " k"], actions: Int[np.ndarray, " k"]) -> Seen:
        """Hold an action in each of these copies."""
        ...

    def stepping(self) -> AbstractContextManager[None]:
        """Arrange the threads for a loop of steps."""
        ...

    def close(self) -> None:
        """Release threads and memory."""
        ...


class AtariEnvironments:
    """Copies of one game behind the paper's pipeline."""

    spec: EnvSpec
    num_envs: int

    def __init__(
        self, env_id: str, game: str, settings: AtariSettings, emulators: Emulators, num_envs: int
    ) -> None:
        """Put the pipeline around emulators that hold one copy per environment."""
        self.num_envs = num_envs
        has_fire = settings.full_action_space or game not in WITHOUT_FIRE_RESET
        settings = dataclasses.replace(
            settings, fire_reset=settings.fire_reset and has_fire, max_episode_steps=settings.limit
        )
        self._settings, self._emulators = settings, emulators
        self.spec = EnvSpec(
            id=env_id,
            observation_space=gymnasium.spaces.Box(0, 255, (FRAME_STACK, *SCREEN), np.uint8),
            action_space=gymnasium.spaces.Discrete(emulators.n_actions),
            max_episode_steps=settings.limit,
            backend=emulators.backend,
            engine=emulators.engine,
            pipeline={
                **dataclasses.asdict(settings),
                "screen": list(SCREEN),
                "frame_stack": FRAME_STACK,
            },
        )
        self._limit = settings.limit
        self._flatten = observation_flattener(self.spec.observation_space)
        self._all = np.arange(num_envs)
        self._stack = np.zeros((num_envs, FRAME_STACK, *SCREEN), np.uint8)
        self._lives = np.zeros(num_envs, np.int64)
        self._steps = np.zeros(num_envs, np.int64)
        self._unreported = np.zeros(num_envs, np.float64)

    def reset(self) -> UInt8[np.ndarray, "n O"]:
        """Start every copy on its own seed."""
        frame = np.empty((self.num_envs, *SCREEN), np.uint8)
        self._begin_game(self._all, self._emulators.start(), frame)
        nothing = np.zeros(self.num_envs, np.float64), np.ones(self.num_envs, np.bool_)
        self._open(self._all, frame, *nothing)
        self._stack = _repeated(frame)
        return self._flatten(self._stack)

    def step(self, actions: Shaped[np.ndarray, "n A"]) -> Step:
        """Step every copy and begin the next episode of those whose episode ended."""
        seen = self._emulators.step(self._all, actions[:, 0])
        self._steps += 1
        truncated = self._steps >= self._limit
        over = seen.game_over | truncated
        died = (seen.lives < self._lives) & (seen.lives > 0) & self._settings.episodic_life
        terminated, continuing = seen.game_over | died, died & ~over
        self._lives[:] = seen.lives
        score = seen.points + self._unreported
        self._unreported[:] = 0.0

        obs = final_obs = np.concatenate([self._stack[:, 1:], seen.frame[:, None]], axis=1)
        begun = np.flatnonzero(terminated | truncated)
        if len(begun) > 0:
            frame = seen.frame.copy()
            self._begin_episodes(np.flatnonzero(over), np.flatnonzero(continuing), frame, score, over)
            obs = final_obs.copy()
            obs[begun] = _repeated(frame[begun])
        self._stack = obs
        reward = np.sign(seen.points) if self._settings.clip_rewards else seen.points
        rows, final_rows = self._flatten(obs), self._flatten(final_obs)
        return Step(rows, reward, terminated, truncated, final_rows, score, over)

    def stepping(self) -> AbstractContextManager[None]:
        """Let the emulators arrange their threads."""
        return self._emulators.stepping()

    def close(self) -> None:
        """Close the emulators."""
        self._emulators.close()

    def _begin_episodes(
        self,
        finished: Int[np.ndarray, " f"],
        continuing: Int[np.ndarray, " c"],
        frame: UInt8[np.ndarray, "n height width"],
        score: Float64[np.ndarray, " n"],
        over: Bool[np.ndarray, " n"],
    ) -> None:
        """Begin another game where one is finished, and go on in the games that lost a life.

        Writes what is seen then to `frame`, and to `score` and `over` where the game ends on the way.
        """
        if len(finished) > 0:
            self._begin_game(finished, self._emulators.restart(finished), frame)
        self._hold(_NOOP, continuing, frame, score, over)
        self._open(np.concatenate([finished, continuing]), frame, score, over)

    def _open(self, copies: Int[np.ndarray, " k"], frame: Any, score: Any, over: Any) -> None:
        if self._settings.fire_reset:
            self._hold(_FIRE, copies, frame, score, over)
            self._hold(_THIRD, copies, frame, score, over)

    def _hold(self, action: int, copies: Int[np.ndarray, " k"], frame: Any, score: Any, over: Any) -> None:
        """A step that no policy chose."""
        if len(copies) == 0:
            return
        seen = self._emulators.step(copies, np.full(len(copies), action))
        frame[copies], self._lives[copies] = seen.frame, seen.lives
        self._unreported[copies] += seen.points
        ended = copies[seen.game_over]
        if len(ended) > 0:
            reported = ended[~over[ended]]  # the others ended before anyone played them
            score[reported] += self._unreported[reported]
            over[reported] = True
            self._begin_game(ended, self._emulators.restart(ended), frame)

    def _begin_game(self, copies: Int[np.ndarray, " k"], seen: Seen, frame: Any) -> None:
        frame[copies], self._lives[copies] = seen.frame, seen.lives
        self._steps[copies], self._unreported[copies] = 0, 0.0


def _repeated(frame: UInt8[np.ndarray, "k height width"]) -> UInt8[np.ndarray, "k stack height width"]:
    """The stack at the beginning of an episode."""
    return np.repeat(frame[:, None], FRAME_STACK, axis=1)
