import os
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from ppo_dice.envs import environment_seeds, make_envs
from ppo_dice.envs.threads import Placement, on_one_core, with_new_threads

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux moves threads")


@linux
def test_threads_are_together_within_the_block_and_free_after_it():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    _, new = with_new_threads(thread.start)
    try:
        assert new == {thread.native_id}
        before = {t: os.sched_getaffinity(t) for t in (0, thread.native_id)}
        with on_one_core(new):
            here, there = os.sched_getaffinity(0), os.sched_getaffinity(thread.native_id)
            assert len(here) == 1
            assert here == there
        assert {t: os.sched_getaffinity(t) for t in before} == before
        with pytest.raises(ZeroDivisionError), on_one_core(new):
            1 / 0  # noqa: B018
        assert {t: os.sched_getaffinity(t) for t in before} == before
    finally:
        stop.set()
        thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # for a moment, after Python is done with it
        time.sleep(0.001)
    with on_one_core(new):  # the thread has ended: nothing happens
        assert os.sched_getaffinity(0) == before[0]
    assert os.sched_getaffinity(0) == before[0]


@pytest.mark.parametrize("quick_together", [True, False])
def test_the_quicker_placement_is_kept(quick_together, monkeypatch):
    clock, arranged = 0.0, []

    def record(threads):
        arranged.append(bool(threads))
        return nullcontext()

    monkeypatch.setattr("ppo_dice.envs.threads.time.perf_counter", lambda: clock)
    monkeypatch.setattr("ppo_dice.envs.threads.on_one_core", record)
    placement = Placement()
    for _ in range(10):
        with placement.chosen(frozenset({1})):
            clock += 1.0 if arranged[-1] is quick_together else 2.0
    assert arranged == [True, False] * 3 + [quick_together] * 4  # each is tried in turn


@linux
def test_envpool_arranges_its_threads_and_leaves_the_caller_free():
    envs = make_envs("CartPole-v1", environment_seeds(0, 2), backend="envpool")
    free = os.sched_getaffinity(0)
    with envs.stepping():
        assert len(os.sched_getaffinity(0)) == 1  # the first arrangement to be tried
    assert os.sched_getaffinity(0) == free
