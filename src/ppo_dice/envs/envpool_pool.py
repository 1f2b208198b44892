"""A pool of EnvPool's with a seed for each copy, and threads placed where they are quickest."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ppo_dice.envs.threads import Placement, with_new_threads
from ppo_dice.envs.worker_choice import cores
from ppo_dice.errors import UserError


class SeededPool:
    """Copies of one EnvPool task; starting over repeats their streams."""

    def __init__(self, env_id: str, seeds: Sequence[int], settings: Mapping[str, Any]) -> None:
        """Make one copy per seed; an integer would give copy k the seed + k, a list gives each its own."""
        self._env_id = env_id
        self._settings = {
            "num_threads": min(len(seeds), cores()),
            **settings,
            "num_envs": len(seeds),
            "seed": list(seeds),
        }
        self._pool: Any
        self._pool, self._threads = with_new_threads(self._make)
        self._placement = Placement()
        self._is_fresh = True

    @property
    def action_space(self) -> Any:
        """The space of one copy's actions."""
        return self._pool.action_space

    def start(self) -> tuple[Any, dict[str, Any]]:
        """Reset every copy on its own seed."""
        if not self._is_fresh:  # seeds are fixed when a pool is made: starting over takes a new one
            self.close()
            self._pool, self._threads = with_new_threads(self._make)
        self._is_fresh = False
        return self._pool.reset()

    def restart(self, copies: Any) -> tuple[Any, dict[str, Any]]:
        """Reset these copies; their rows come in the order of `info["env_id"]`."""
        return self._pool.reset(copies)

    def step(self, actions: Any, copies: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every copy, or these, whose rows come in the order of `info["env_id"]`."""
        return self._pool.step(actions, copies)

    def stepping(self) -> AbstractContextManager[None]:
        """Run the threads where they turn out to be quickest."""
        return self._placement.chosen(self._threads)

    def close(self) -> None:
        """Stop the threads; EnvPool does so when the pool is no longer referred to."""
        self._pool = None

    def _make(self) -> Any:
        import envpool

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pool = envpool.make_gymnasium(self._env_id, **self._settings)
                # Made now and kept, or it would warn of the precision of its bounds at the first step.
                _ = pool.observation_space
                return pool
        except Exception as cause:
            raise UserError(envpool_failure(self._env_id, cause)) from cause


def envpool_failure(env_id: str, cause: Exception) -> str:
    """One sentence on why EnvPool did not make a task."""
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return f"{env_id} could not be made by EnvPool: {lines[0]}"
