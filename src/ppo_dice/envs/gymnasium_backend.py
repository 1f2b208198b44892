"""Any Gymnasium environment: registered, made by a callable, or made already."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Shaped

from ppo_dice.envs.contract import EnvSpec, Step
from ppo_dice.envs.gymnasium_make import EnvLike, make_copy
from ppo_dice.envs.spaces import (
    action_converter,
    check_observation,
    check_spaces,
    observation_flattener,
    stack_observations,
    unstack_actions,
)
from ppo_dice.errors import UserError


class GymnasiumEnvironments:
    """Copies of one Gymnasium environment, stepped one after the other."""

    spec: EnvSpec
    num_envs: int

    def __init__(
        self,
        env: EnvLike,
        seeds: Sequence[int],
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        checked: bool = True,
    ) -> None:
        """Make one copy per seed; `checked` runs Gymnasium's own checker on the first."""
        if isinstance(env, gymnasium.Env) and len(seeds) != 1:
            raise UserError(
                f"One environment object cannot make {len(seeds)} copies; "
                "pass its id or a callable that makes one, such as `lambda: MyEnv()`."
            )
        self._owned = not isinstance(env, gymnasium.Env)
        self._seeds = list(seeds)
        self._envs: list[gymnasium.Env[Any, Any]] = []
        for copy in range(len(seeds)):
            self._envs.append(make_copy(env, env_kwargs or {}, first=checked and copy == 0))
        self.num_envs = len(seeds)
        self.spec = _spec(self._envs[0], env)
        check_spaces(self.spec.observation_space, self.spec.action_space, self.spec.id)
        self._flatten_batch = observation_flattener(self.spec.observation_space)
        self._convert = action_converter(self.spec.action_space)

    def reset(self) -> Shaped[np.ndarray, "n O"]:
        """Start every copy on its own seed."""
        observations = [env.reset(seed=seed)[0] for env, seed in zip(self._envs, self._seeds)]
        self._check(observations)
        return self._flatten(observations)

    def step(self, actions: Shaped[np.ndarray, "n A"]) -> Step:
        """Step every copy and restart those whose episode ended."""
        env_actions = unstack_actions(self.spec.action_space, self._convert(actions))
        results = [env.step(action) for env, action in zip(self._envs, env_actions)]
        observations, rewards, terminations, truncations, _ = zip(*results)
        terminated, truncated = np.array(terminations, np.bool_), np.array(truncations, np.bool_)
        final_obs = self._flatten(list(observations))
        obs = final_obs
        ended = np.flatnonzero(terminated | truncated)
        if len(ended) > 0:
            obs = final_obs.copy()
            obs[ended] = self._flatten([self._envs[copy].reset()[0] for copy in ended])
        return Step(obs, np.array(rewards, np.float64), terminated, truncated, final_obs)

    def stepping(self) -> AbstractContextManager[None]:
        """Nothing to arrange."""
        return nullcontext()

    def close(self) -> None:
        """Close the copies; an environment made by the caller stays the caller's to close."""
        if self._owned:
            for env in self._envs:
                env.close()
        self._envs = []

    def _flatten(self, observations: list[Any]) -> Shaped[np.ndarray, "n O"]:
        try:
            flat = self._flatten_batch(stack_observations(self.spec.observation_space, observations))
        except (IndexError, KeyError, TypeError, ValueError):
            self._check(observations)  # says in a sentence what does not fit
            raise
        if len(flat) != len(observations):  # of another size than declared, they made other rows
            self._check(observations)
        return flat

    def _check(self, observations: list[Any]) -> None:
        for observation in observations:
            check_observation(self.spec.observation_space, observation, self.spec.id)


def engine(env: gymnasium.Env[Any, Any]) -> str:
    """Name what computes the environment, with versions."""
    framework = f"Gymnasium {gymnasium.__version__}"
    model = getattr(env.unwrapped, "model", None)
    if type(model).__module__.startswith("mujoco"):
        return f"mujoco {importlib.metadata.version('mujoco')} ({framework})"
    return framework


def max_episode_steps(env: gymnasium.Env[Any, Any]) -> int | None:
    """Return the time limit of the environment's wrappers, whoever put it there."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    return None


def _spec(env: gymnasium.Env[Any, Any], made_from: EnvLike) -> EnvSpec:
    return EnvSpec(
        id=_id(env, made_from),
        observation_space=env.observation_space,
        action_space=env.action_space,
        max_episode_steps=max_episode_steps(env),
        backend="gymnasium",
        engine=engine(env),
    )


def _id(env: gymnasium.Env[Any, Any], made_from: EnvLike) -> str:
    if env.spec is None:
        return type(env.unwrapped).__name__
    module, colon, _ = made_from.rpartition(":") if isinstance(made_from, str) else ("", "", "")
    return f"{module}{colon}{env.spec.id}"
