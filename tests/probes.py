"""Environments whose values and best actions are known beforehand."""

import signal
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Discrete


class Probe(gymnasium.Env[np.ndarray, Any]):
    """Shared parts: observations are vectors of one number in [-1, 1]."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space: Any = Discrete(2)

    def see(self, value: float) -> np.ndarray:
        return np.array([value], np.float32)


class ConstantReward(Probe):
    """One step, reward 1: V = 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.see(0.0), {}

    def step(self, action: Any) -> Any:
        return self.see(0.0), 1.0, True, False, {}


class RewardIsObservation(Probe):
    """One step, reward = observation = ±1: V(s) = s."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return self.see(self.sign), {}

    def step(self, action: Any) -> Any:
        return self.see(self.sign), self.sign, True, False, {}


class DelayedReward(Probe):
    """Two steps, reward 1 at the end: V(0) = γ and V(1) = 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.late = False
        return self.see(0.0), {}

    def step(self, action: Any) -> Any:
        if self.late:
            return self.see(0.0), 1.0, True, False, {}
        self.late = True
        return self.see(1.0), 0.0, False, False, {}


class RightActionByObservation(Probe):
    """One step: action 1 is right where the observation is +1, action 0 where it is −1; reward ±1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return self.see(self.sign), {}

    def step(self, action: Any) -> Any:
        right = (int(action) == 1) == (self.sign > 0)
        return self.see(self.sign), 1.0 if right else -1.0, True, False, {}


class ActionEqualsObservation(Probe):
    """One step, continuous: reward −(a − s/2)²; the best action is half the observation."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.target = float(self.np_random.uniform(-1, 1))
        return self.see(self.target), {}

    def step(self, action: Any) -> Any:
        return self.see(self.target), -float((action[0] - self.target / 2) ** 2), True, False, {}


class Endless(Probe):
    """Reward 1 for ever; cut (never ended) every `limit` steps where a limit is given: V = 1/(1 − γ)."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return self.see(0.0), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.see(0.0), 1.0, False, self.steps == self.limit, {}


class Broken(Probe):
    """Returns a reward that is not a number after some steps."""

    def __init__(self, after: int = 100) -> None:
        self.after = after

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return self.see(0.0), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.see(0.0), float("nan") if self.steps > self.after else 1.0, False, False, {}


class InterruptingCartPole(CartPoleEnv):
    """Sends one interrupt, after a number of steps that all copies take together."""

    left: ClassVar[int] = 0

    @classmethod
    def interrupt_after(cls, steps: int) -> None:
        cls.left = steps

    def step(self, action: Any) -> Any:
        InterruptingCartPole.left -= 1
        if InterruptingCartPole.left == 0:
            signal.raise_signal(signal.SIGINT)
        return super().step(action)
