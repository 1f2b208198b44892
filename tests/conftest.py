"""Strictness that holds for every test: no silent broadcasting between ranks."""

import os
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "jax"))  # commands in subprocesses too
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

import jax
import pytest
from hypothesis import settings

from compiled import CHEAP, forget_if_much, training_compiled_as_shipped

# Read when JAX makes its first array, and in subprocesses. A flag that is set already comes last, and wins.
os.environ["XLA_FLAGS"] = f"{CHEAP} {os.environ.get('XLA_FLAGS', '')}"
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes the first example slow; determinism makes a failure the same for everyone.
settings.register_profile("ppo-dice", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ppo-dice")


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> None:
    forget_if_much()


@pytest.fixture(scope="module")
def as_shipped() -> Iterator[None]:
    """Agents train with the code that users have: for tests of bits and of learning."""
    with training_compiled_as_shipped():
        yield


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder: some engines write log files into the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
