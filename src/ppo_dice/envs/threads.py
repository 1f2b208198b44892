"""Where threads run. Threads that hand over to each other and wait often do best on the same core."""

import ctypes
import os
import statistics
import time
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

    Waking a thread on a sleeping core can take longer than a step of a small simulation's own work. The
    block should be short (a rollout), for a core that becomes busy with something else cannot be left before
    its end.
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


class Placement:
    """Finds out by timing where a pool's threads do better: on the caller's core, or left to the system.

    Which it is depends on the machine: a step of 4 copies of Hopper took .31 ms on one core and .45 ms on two
    where waking a core is slow; ten copies took .66 ms on one core and between .52 and .78 ms on two. Results
    do not depend on it.
    """

    _TRIALS = 3

    def __init__(self) -> None:
        self._seconds: dict[bool, list[float]] = {True: [], False: []}

    @contextmanager
    def chosen(self, threads: frozenset[int]) -> Iterator[None]:
        """Arrange the threads for the block, one of many that do the same work."""
        together = self._next()
        began = time.perf_counter()
        with on_one_core(threads if together else frozenset()):
            yield
        if len(self._seconds[together]) < self._TRIALS:
            self._seconds[together].append(time.perf_counter() - began)

    def _next(self) -> bool:
        together, apart = self._seconds[True], self._seconds[False]
        if len(apart) < self._TRIALS:
            return len(together) == len(apart)
        return statistics.median(together) <= statistics.median(apart)


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
