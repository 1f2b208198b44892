"""Compiled code is memory that is mapped, of which the system allows one process only so many pieces."""

import sys

import jax


def forget() -> None:
    """Let go of everything compiled so far in this process."""
    if "ppo_dice.training" in sys.modules:  # not imported here: the checks of types must see it first
        sys.modules["ppo_dice.training"]._stages.cache_clear()
    jax.clear_caches()
