"""Atari games in EnvPool's emulators.

EnvPool has a pipeline of its own, of which only the lower part is used: the emulator, no-ops, frame skip,
maximum and resizing. After a lost life it would play up to `noop_max` no-ops, and it clears the end of a game
that falls on its limit of steps.
"""

import importlib.metadata
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from jaxtyping import Int

from ppo_dice.atari_games import envpool_id
from ppo_dice.atari_settings import SCREEN, AtariSettings
from ppo_dice.envs.atari_pipeline import Seen
from ppo_dice.envs.envpool_pool import SeededPool

_NO_LIMIT = 2**31 - 1


class EnvPoolEmulators:
    """Copies of one game, stepped by EnvPool's threads."""

    backend = "envpool"
    n_actions: int
    engine: str

    def __init__(self, game: str, settings: AtariSettings, seeds: Sequence[int]) -> None:
        """Make one copy per seed."""
        height, width = SCREEN
        lower_part = {
            "stack_num": 1,
            "frame_skip": settings.frame_skip,
            "noop_max": settings.noop_max,
            "use_fire_reset": False,
            "episodic_life": False,
            "reward_clip": False,
            "zero_discount_on_life_loss": False,
            "repeat_action_probability": settings.sticky_actions,
            "full_action_space": settings.full_action_space,
            "img_height": height,
            "img_width": width,
            "gray_scale": True,
            "use_inter_area_resize": True,
            "max_episode_steps": _NO_LIMIT,
        }
        self._pool = SeededPool(envpool_id(game), seeds, lower_part)
        self.n_actions = int(self._pool.action_space.n)
        self.engine = f"EnvPool {importlib.metadata.version('envpool')}"

    def start(self) -> Seen:
        """Begin a game in every copy, each on its own seed."""
        frames, info = self._pool.start()
        return _seen(frames, info)

    def restart(self, copies: Int[np.ndarray, " k"]) -> Seen:
        """Begin another game in these copies."""
        frames, info = self._pool.restart(copies.astype(np.int32))
        return _in_order_of(copies, _seen(frames, info), info)

    def step(self, copies: Int[np.ndarray, " k"], actions: Int[np.ndarray, " k"]) -> Seen:
        """Hold an action in each of these copies."""
        frames, _, _, _, info = self._pool.step(actions.astype(np.int32), copies.astype(np.int32))
        return _in_order_of(copies, _seen(frames, info), info)

    def stepping(self) -> AbstractContextManager[None]:
        """Run the threads where they turn out to be quickest."""
        return self._pool.stepping()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()


def _seen(frames: Any, info: dict[str, Any]) -> Seen:
    points = info["reward"].astype(np.float64)
    return Seen(frames[:, 0], points, info["lives"].astype(np.int64), info["terminated"].astype(np.bool_))


def _in_order_of(copies: Int[np.ndarray, " k"], seen: Seen, info: dict[str, Any]) -> Seen:
    place_of = np.argsort(info["env_id"])  # the answers come as they are ready
    wanted = place_of[np.searchsorted(info["env_id"], copies, sorter=place_of)]
    return Seen(*(part[wanted] for part in seen))
