"""Small environments whose every transition is known."""

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Observes (episode, steps in it), pays the step's number, terminates after `length` steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 3) -> None:
        self.length, self.episode, self.steps = length, -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        action *= 0.0  # an impolite environment: it must not reach the policy's own array
        self.steps += 1
        return self._observation(), float(self.steps), self.steps == self.length, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.episode, self.steps], np.float64)


class Noise(gymnasium.Env):
    """Observes its generator's draws, so that streams can be compared; episodes end at random."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.np_random.normal(size=3), {}

    def step(self, action: np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        draw = self.np_random.normal(size=3)
        return draw, float(draw[0] + action), bool(draw[1] > 1.0), bool(draw[2] > 1.0), {}


class Failing(Noise):
    """Fails in its second step: by an exception, or by ending the whole process."""

    def __init__(self, how: str = "exception") -> None:
        self.how, self.steps = how, 0

    def step(self, action: np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        if self.steps == 2 and self.how == "exception":
            raise ZeroDivisionError("the second step fails")
        if self.steps == 2:
            os._exit(7)
        return super().step(action)


class WithSpaces(gymnasium.Env):
    """Has the spaces it is told to have and does nothing."""

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), 0.0, False, False, {}


def stream(envs: Any, steps: int, action_seed: int = 0) -> list[np.ndarray]:
    """Reset, take seeded random actions, and return everything the environments said."""
    from ppo_dice.envs import action_size, category_counts

    rng = np.random.default_rng(action_seed)
    space, said = envs.spec.action_space, [envs.reset()]
    for _ in range(steps):
        size = (envs.num_envs, action_size(space))
        if counts := category_counts(space):
            actions = rng.integers(0, counts, size, dtype=np.int32)
        else:
            actions = rng.normal(size=size).astype(np.float32)
        said.extend(part for part in envs.step(actions) if part is not None)
    return said


def equal(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(
        one.dtype == other.dtype and np.array_equal(one, other) for one, other in zip(left, right)
    )
