"""How tests compile: cheaply, or as users do where bits and learning are claimed; and when code is let go."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import pytest

CHEAP = (
    "--xla_backend_optimization_level=1"
    " --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)
"""Flags of XLA: an update compiles in a quarter of the time to a quarter of the code, and runs nearly as
fast."""

AS_SHIPPED = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
}
"""What XLA does without these flags, as `compiler_options` of one function."""

LIMIT = 10_000
"""Pieces of mapped memory at which a process lets go of its code.

At 25,000 it had 4 GB; at 65,530 Linux ends it."""

_MAPS = Path("/proc/self/maps")


@contextmanager
def training_compiled_as_shipped() -> Iterator[None]:
    """Agents made in here train with the code that users have."""
    compile = jax.stages.Lowered.compile
    forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", lambda lowered: compile(lowered, AS_SHIPPED))
        yield
    forget()


def forget_if_much() -> None:
    """Let go of compiled code, which is mapped memory, before there is more of it than a process may have."""
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > LIMIT:
        forget()


def forget() -> None:
    """Let go of everything compiled so far in this process."""
    for module, kept in (("training", "_stages"), ("evaluation", "_choose_actions")):
        if f"ppo_dice.{module}" in sys.modules:  # not imported here: the checks of types must see it first
            getattr(sys.modules[f"ppo_dice.{module}"], kept).cache_clear()
    jax.clear_caches()
