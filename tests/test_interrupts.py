import signal

import pytest

from ppo_dice.interrupts import interrupts_wait


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


def test_an_error_is_not_hidden_and_the_handler_comes_back():
    with pytest.raises(ZeroDivisionError), interrupts_wait():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
