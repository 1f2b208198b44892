"""Atari games in ale-py's emulators.

ale-py's vector steps all of its copies or none, but a game that goes on after a lost life needs steps of its
own: so every copy is a vector of one here, with a thread of its own, and all of them work at the same time.
Of its pipeline only the lower part is used: the emulator, no-ops, frame skip, maximum and resizing. Its stack
would begin with black frames, and FIRE would come before the no-ops.
"""

import importlib.metadata
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from jaxtyping import Int

from ppo_dice.atari_settings import SCREEN, AtariSettings
from ppo_dice.envs.atari_pipeline import Seen
from ppo_dice.errors import UserError

_NO_LIMIT = 10**9
_GO_ON = np.array([-1])
"""The seed that leaves the emulator's generator where it is."""
_ONLY_ONE = np.array([0])


class AleEmulators:
    """Copies of one game, each stepped by a thread of its own."""

    backend = "ale"
    n_actions: int
    engine: str

    def __init__(self, game: str, settings: AtariSettings, seeds: Sequence[int]) -> None:
        """Make one copy per seed."""
        try:
            import ale_py
            from ale_py import roms
        except ImportError as cause:
            raise UserError(
                f"ale-py cannot be imported ({cause}); run: pip install 'ppo-dice[atari]', "
                "or use the backend envpool."
            ) from cause
        height, width = SCREEN
        rom: Any = roms.get_rom_path(game)
        self._seeds = list(seeds)
        self._copies = [
            ale_py.ALEVectorInterface(
                rom_path=rom,
                num_envs=1,
                batch_size=1,
                num_threads=1,
                thread_affinity_offset=-1,
                frame_skip=settings.frame_skip,
                maxpool=settings.frame_skip > 1,
                stack_num=1,
                img_height=height,
                img_width=width,
                grayscale=True,
                noop_max=settings.noop_max,
                use_fire_reset=False,
                episodic_life=False,
                life_loss_info=False,
                reward_clipping=False,
                max_episode_steps=_NO_LIMIT,
                repeat_action_probability=settings.sticky_actions,
                full_action_space=settings.full_action_space,
                autoreset_mode="NextStep",  # never comes to it: games that are over are restarted at once
            )
            for _ in seeds
        ]
        self.n_actions = len(self._copies[0].get_action_set())
        self.engine = f"ale-py {importlib.metadata.version('ale-py')}"

    def start(self) -> Seen:
        """Begin a game in every copy, each on its own seed."""
        seeds = [np.array([seed]) for seed in self._seeds]
        return _joined([copy.reset(_ONLY_ONE, seed) for copy, seed in zip(self._copies, seeds)])

    def restart(self, copies: Int[np.ndarray, " k"]) -> Seen:
        """Begin another game in these copies."""
        return _joined([self._copies[copy].reset(_ONLY_ONE, _GO_ON) for copy in copies])

    def step(self, copies: Int[np.ndarray, " k"], actions: Int[np.ndarray, " k"]) -> Seen:
        """Hold an action in each of these copies."""
        strength = np.ones(1, np.float32)  # of a paddle that is steered without steps, which none is here
        chosen = [self._copies[copy] for copy in copies]
        for copy, action in zip(chosen, actions.astype(np.int32)[:, None]):
            copy.send(action, strength)
        return _joined([copy.recv() for copy in chosen])

    def stepping(self) -> AbstractContextManager[None]:
        """Nothing to arrange."""
        return nullcontext()

    def close(self) -> None:
        """Stop the threads; ale-py does so when a copy is no longer referred to."""
        self._copies = []


def _joined(answers: list[Any]) -> Seen:
    """Put answers of single copies together: (frames, info) of a reset, and more in between of a step."""
    frames = np.concatenate([answer[0][:, 0] for answer in answers])
    lives = np.concatenate([answer[-1]["lives"] for answer in answers]).astype(np.int64)
    if len(answers[0]) == 2:
        return Seen(frames, np.zeros(len(lives), np.float64), lives, np.zeros(len(lives), np.bool_))
    points, game_over = (np.concatenate([answer[part] for answer in answers]) for part in (1, 2))
    return Seen(frames, points.astype(np.float64), lives, game_over.astype(np.bool_))
