"""Ctrl-C at a moment of our choosing, and never lost."""

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

INTERRUPTED = 130
"""Exit status of a command that Ctrl-C ended, as shells know it."""

_SECONDS_UNTIL_AGAIN = 0.01


@contextmanager
def interrupts_wait() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Let Ctrl-C wait for the end of the block, so that what belongs together is written together.

    What may take long within it is done in a block of what is given: `with may_be_interrupted():`.
    """
    if not _in_main_thread():
        yield nullcontext  # signals reach the main thread alone
        return
    came: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True)) or signal.SIG_DFL
    waiting = signal.getsignal(signal.SIGINT)

    @contextmanager
    def may_be_interrupted() -> Iterator[None]:
        signal.signal(signal.SIGINT, before)
        try:
            _deliver(came)
            yield
        finally:
            signal.signal(signal.SIGINT, waiting)

    try:
        yield may_be_interrupted
    finally:
        signal.signal(signal.SIGINT, before)
    _deliver(came)


def _deliver(came: list[Any]) -> None:
    if came:
        came.clear()
        signal.raise_signal(signal.SIGINT)


@contextmanager
def interrupts_kept() -> Iterator[Callable[[], None]]:
    """Lose no Ctrl-C within the block; the function given raises one that came and got lost.

    It gets lost where somebody ignores every exception. Python does, in callbacks of its garbage collector
    (JAX has one) and in `__del__`, and tells a hook, which has it delivered again a moment later. JAX does,
    in silence, where it asks for the name of what it compiles.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or not callable(handler):
        yield lambda: None
        return
    came: list[bool] = []

    def note(number: int, frame: Any) -> None:
        try:
            handler(number, frame)
        except KeyboardInterrupt:
            came.append(True)
            raise

    def raise_lost() -> None:
        if came:
            raise KeyboardInterrupt

    hook = sys.unraisablehook
    signal.signal(signal.SIGINT, note)
    sys.unraisablehook = partial(_deliver_again, hook)
    try:
        yield raise_lost
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, handler)


def _deliver_again(hook: Callable[[Any], Any], ignored: Any) -> None:
    if ignored.exc_type is KeyboardInterrupt:
        _thread.start_new_thread(_interrupt_again, ())  # raised here and now, it would be lost again
    else:
        hook(ignored)


def _interrupt_again() -> None:
    time.sleep(_SECONDS_UNTIL_AGAIN)
    _thread.interrupt_main()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
