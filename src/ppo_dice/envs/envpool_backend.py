"""EnvPool: the same tasks in C++, stepped by threads.

Its habits differ from the contract, and this adapter is where they end:

* after an episode it would spend one step on the restart; the finished copies are reset at once instead;
* it clears `terminated` on the step of the time limit; its limit is set one step later, the real one is here.
"""

import functools
import importlib.metadata
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from ppo_dice.envs.contract import EnvSpec, Step
from ppo_dice.envs.envpool_pool import SeededPool, envpool_failure
from ppo_dice.envs.gymnasium_make import refused_argument
from ppo_dice.envs.names import envpool_ids, unknown_environment
from ppo_dice.envs.spaces import action_converter, check_spaces, observation_flattener
from ppo_dice.errors import UserError

_NO_LIMIT = 2**31 - 1

_RESERVED = ("num_envs", "batch_size", "seed", "env_seed", "gym_reset_return_info")


class EnvPoolEnvironments:
    """Copies of one EnvPool task."""

    spec: EnvSpec
    num_envs: int

    def __init__(
        self, env_id: str, seeds: Sequence[int], env_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Make one copy per seed."""
        pool_spec = _pool_spec(env_id, env_kwargs or {})
        limit = int(pool_spec.config.max_episode_steps)
        self.num_envs = len(seeds)
        self.spec = _env_spec(env_id, pool_spec, limit)
        check_spaces(self.spec.observation_space, self.spec.action_space, env_id)
        self._limit = limit
        one_later = {"max_episode_steps": min(limit + 1, _NO_LIMIT)}
        self._pool = SeededPool(env_id, seeds, {**(env_kwargs or {}), **one_later})
        self._elapsed = np.zeros(len(seeds), np.int64)
        self._flatten = observation_flattener(self.spec.observation_space)
        self._convert = action_converter(self.spec.action_space)

    def reset(self) -> Shaped[np.ndarray, "n O"]:
        """Start every copy on its own seed."""
        self._elapsed[:] = 0
        observations, _ = self._pool.start()
        return self._flatten(observations)

    def step(self, actions: Shaped[np.ndarray, "n A"]) -> Step:
        """Step every copy and restart those whose episode ended."""
        observations, reward, terminated, truncated, _ = self._pool.step(self._convert(actions))
        self._elapsed += 1
        truncated = truncated | (self._elapsed >= self._limit)
        final_obs = self._flatten(observations)
        ended = terminated | truncated
        obs = self._restart(ended, final_obs) if ended.any() else final_obs
        return Step(obs, reward.astype(np.float64), terminated, truncated, final_obs)

    def stepping(self) -> AbstractContextManager[None]:
        """Run the threads where they turn out to be quickest."""
        return self._pool.stepping()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()

    def _restart(
        self, ended: Bool[np.ndarray, " n"], final_obs: Shaped[np.ndarray, "n O"]
    ) -> Shaped[np.ndarray, "n O"]:
        copies = np.flatnonzero(ended).astype(np.int32)
        observations, info = self._pool.restart(copies)
        obs = final_obs.copy()
        obs[info["env_id"]] = self._flatten(observations)
        self._elapsed[copies] = 0
        return obs


def _pool_spec(env_id: str, env_kwargs: Mapping[str, Any]) -> Any:
    """Return EnvPool's description of the task with the user's arguments."""
    known = envpool_ids()
    try:
        import envpool
    except ImportError as cause:
        raise UserError(
            f"EnvPool cannot be imported ({cause}); run: pip install envpool, or use the backend gymnasium."
        ) from cause
    if env_id not in known:
        raise UserError(f"EnvPool does not have it: {unknown_environment(env_id, known)}")
    for argument in env_kwargs:
        if argument in _RESERVED:
            raise UserError(f"{argument!r} is set by the library and cannot be an environment argument.")
    try:
        spec = envpool.make_spec(env_id, **env_kwargs)
    except Exception as cause:
        if (refused := refused_argument(cause, env_kwargs)) is not None:
            raise UserError(
                f"{env_id} of EnvPool does not accept the argument {refused!r}; "
                "if Gymnasium's does, use the backend gymnasium."
            ) from cause
        raise UserError(envpool_failure(env_id, cause)) from cause
    if spec.config.max_num_players > 1:
        raise UserError(f"{env_id} is a game of several players, which is not supported.")
    if "max_episode_steps" in env_kwargs and env_kwargs["max_episode_steps"] < 1:
        raise UserError(f"max_episode_steps must be at least 1, not {env_kwargs['max_episode_steps']}.")
    return spec


def _env_spec(env_id: str, pool_spec: Any, limit: int) -> EnvSpec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # EnvPool lowers the precision of its own bounds
        return EnvSpec(
            id=env_id,
            observation_space=pool_spec.gymnasium_observation_space,
            action_space=pool_spec.gymnasium_action_space,
            max_episode_steps=None if limit >= _NO_LIMIT else limit,
            backend="envpool",
            engine=_engine(env_id),
        )


def _engine(env_id: str) -> str:
    framework = f"EnvPool {importlib.metadata.version('envpool')}"
    mujoco = _mujoco_version() if _family(env_id).startswith("envpool.mujoco") else None
    return framework if mujoco is None else f"mujoco {mujoco} ({framework})"


@functools.cache
def _mujoco_version() -> str | None:
    """Read the version of the MuJoCo that is linked into EnvPool; it is not written anywhere else."""
    import envpool

    library = Path(str(envpool.__file__)).parent / "mujoco" / "mujoco_gym_envpool.so"
    if not library.exists():
        return None
    versions = set(re.findall(rb"\x00(\d+\.\d+\.\d+)\x00", library.read_bytes()))
    return versions.pop().decode() if len(versions) == 1 else None


def _family(env_id: str) -> str:
    from envpool.registration import registry

    return str(registry.specs[env_id][0])
