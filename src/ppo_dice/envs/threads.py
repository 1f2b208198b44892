"""Where threads run. One thread that hands over to another and waits does best on the same core."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")

_TASKS = Path("/proc/self/task")  # Linux alone shows and moves threads


def with_new_threads(make: Callable[[], Made]) -> tuple[Made, frozenset[int]]:
    """Call `make`, and say which threads it started; none where the system does not tell."""
    before = _threads()
    made = make()
    return made, _threads() - before


@contextmanager
def on_one_core(threads: frozenset[int]) -> Iterator[None]:
    """Keep the calling thread and `threads` on the core where it runs now, until the end of the block.

    Waking a thread on a sleeping core takes longer than a step of a small simulation's own work: one copy of
    Hopper takes 116 µs a step left alone, and 81 µs so. The block should be short (a rollout), for a core
    that becomes busy with something else cannot be left before its end.
    """
    core = _current_core() if threads else None
    if core is None:
        yield
        return
    allowed: dict[int, set[int]] = {}
    try:
        for thread in (0, *threads):  # 0 is the calling thread
            allowed[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, {core})
    except OSError:  # a thread has ended, or moving it is forbidden: go on without
        _restore(allowed)
        allowed = {}
    try:
        yield
    finally:
        _restore(allowed)


def _restore(allowed: dict[int, set[int]]) -> None:
    for thread, cores in allowed.items():
        try:
            os.sched_setaffinity(thread, cores)
        except OSError:
            continue


def _threads() -> frozenset[int]:
    return frozenset(int(task.name) for task in _TASKS.iterdir()) if _TASKS.is_dir() else frozenset()


def _current_core() -> int | None:
    try:
        core = int(ctypes.CDLL(None).sched_getcpu())
    except (AttributeError, OSError):
        return None
    return core if core >= 0 else None
