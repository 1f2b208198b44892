"""What no machine can do is refused before it is begun."""

import os
from typing import Any

from ppo_dice.errors import UserError

MAX_COPIES = 100_000
"""Copies of an environment in one process, over all seeds."""

_BYTES_PER_NUMBER = 4


def refuse_too_many_copies(n_envs: int, seeds: int) -> None:
    """Refuse more environments than one process can sensibly hold."""
    if n_envs * seeds > MAX_COPIES:
        raise UserError(
            f"{n_envs:,} environments for each of {seeds:,} seeds are too many for one process, "
            f"which takes up to {MAX_COPIES:,}; lower n_envs or seeds."
        )


def refuse_rollout_beyond_memory(
    config: Any, seeds: int, *, observation_bytes: int = 4, action_size: int = 1
) -> None:
    """Refuse a rollout whose arrays alone exceed the machine's memory.

    Counted are the observations and those that follow, actions and rewards; the update takes more.
    """
    per_step = 2 * observation_bytes + (action_size + 1) * _BYTES_PER_NUMBER
    needed = config.batch_size * seeds * per_step
    memory = _machine_memory()
    if memory is not None and needed > memory:
        raise UserError(
            f"One iteration of {config.n_steps:,} steps in {config.n_envs:,} environments for each of "
            f"{seeds:,} seeds takes at least {_gigabytes(needed)} of memory, but this machine has "
            f"{_gigabytes(memory)}; lower n_steps, n_envs or seeds."
        )


def _machine_memory() -> int | None:
    """Bytes of memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
