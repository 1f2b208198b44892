"""Seeds of environments: one independent stream per (run seed, purpose, segment, copy)."""

from typing import Literal

import numpy as np

from ppo_dice.errors import UserError

Purpose = Literal["train", "evaluate"]

_PURPOSES: tuple[Purpose, ...] = ("train", "evaluate")
_LOW_31_BITS = 0x7FFF_FFFF  # EnvPool takes signed 32-bit seeds and Gymnasium refuses negative ones


def environment_seeds(
    run_seed: int, n_envs: int, *, segment: int = 0, purpose: Purpose = "train"
) -> list[int]:
    """Return the seeds of `n_envs` copies; the seed of copy `k` does not depend on `n_envs`.

    Seeds are spawned, never counted up: with `seed + k` neighbouring runs would share most of their copies.
    """
    if segment < 0:
        raise UserError(f"The seed of a set of environments must be at least 0, but is {segment}.")
    return [_seed(run_seed, spawn_key=(_PURPOSES.index(purpose), segment, copy)) for copy in range(n_envs)]


def _seed(run_seed: int, spawn_key: tuple[int, ...]) -> int:
    sequence = np.random.SeedSequence(entropy=run_seed, spawn_key=spawn_key)
    return int(sequence.generate_state(1)[0]) & _LOW_31_BITS
