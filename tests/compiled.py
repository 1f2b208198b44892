"""Compiled code is memory that is mapped, of which the system allows one process only so many pieces."""

import sys

import jax


def forget() -> None:
    """Let go of everything compiled so far in this process."""
    for module, kept in (("training", "_stages"), ("evaluation", "_choose_actions")):
        if f"ppo_dice.{module}" in sys.modules:  # not imported here: the checks of types must see it first
            getattr(sys.modules[f"ppo_dice.{module}"], kept).cache_clear()
    jax.clear_caches()
