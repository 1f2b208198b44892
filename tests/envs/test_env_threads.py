import os
import sys
import threading

import pytest

from ppo_dice.envs import environment_seeds, make_envs
from ppo_dice.envs.threads import on_one_core, with_new_threads

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
    with on_one_core(new):  # the thread has ended: nothing happens
        assert os.sched_getaffinity(0) == before[0]
    assert os.sched_getaffinity(0) == before[0]


@linux
@pytest.mark.parametrize(("copies", "together"), [(1, True), (2, False)])
def test_a_single_copy_of_envpool_keeps_to_the_callers_core(copies, together):
    envs = make_envs("CartPole-v1", environment_seeds(0, copies), backend="envpool")
    free = os.sched_getaffinity(0)
    with envs.stepping():
        assert (len(os.sched_getaffinity(0)) == 1) is (together or len(free) == 1)
    assert os.sched_getaffinity(0) == free
