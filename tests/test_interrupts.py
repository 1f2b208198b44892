import contextlib
import gc
import signal
import sys
import time

import pytest

from ppo_dice.interrupts import interrupts_kept, interrupts_wait


@pytest.fixture
def interrupting_collection():
    """A garbage collection in which an interrupt falls."""

    def interrupt(phase, _info):
        if phase == "stop":
            gc.callbacks.remove(interrupt)
            signal.raise_signal(signal.SIGINT)

    return lambda: (gc.callbacks.append(interrupt), gc.collect())


def test_an_interrupt_comes_at_the_end_of_the_block():
    done = []

    @interrupts_wait()
    def interrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("what belongs together")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["what belongs together"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_within_the_block_there_can_be_one_that_an_interrupt_reaches():
    done = []

    def interrupted():
        with interrupts_wait() as may_be_interrupted:
            try:
                with may_be_interrupted():
                    signal.raise_signal(signal.SIGINT)
                    done.append("what may take long")
            finally:
                done.append("what belongs together")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["what belongs together"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_waited_comes_before_what_may_be_interrupted():
    done = []

    def interrupted():
        with interrupts_wait() as may_be_interrupted:
            signal.raise_signal(signal.SIGINT)
            done.append("what belongs together")
            with may_be_interrupted():
                done.append("what may take long")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["what belongs together"]


def test_an_error_is_not_hidden_and_the_handler_comes_back():
    with pytest.raises(ZeroDivisionError), interrupts_wait():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_a_garbage_collection_ignored_comes_again(interrupting_collection, capsys):
    reached = []

    @interrupts_kept()
    def interrupted():
        interrupting_collection()
        reached.append("after the collection")
        time.sleep(10)
        reached.append("after all that time")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached == ["after the collection"]
    assert capsys.readouterr().err == ""


def test_an_interrupt_that_somebody_swallowed_is_raised_when_it_is_asked_for():
    with interrupts_kept() as raise_lost:
        raise_lost()  # nothing came
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            raise_lost()


def test_a_handler_that_does_not_interrupt_is_left_to_its_ways():
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        with interrupts_kept() as raise_lost:
            signal.raise_signal(signal.SIGINT)
            raise_lost()
    finally:
        signal.signal(signal.SIGINT, before)
    assert came == [True]


def test_other_ignored_exceptions_are_told_and_everything_is_put_back(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: told.append(ignored.exc_type))
    hook = sys.unraisablehook

    class Failing:
        def __del__(self):
            raise ZeroDivisionError

    with interrupts_kept():
        Failing()
    assert told == [ZeroDivisionError]
    assert sys.unraisablehook is hook
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
