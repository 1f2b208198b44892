"""The other end of `workers`: makes its copies and steps them as it is told, until its stdin ends."""

import os
import pickle
import sys
import traceback
from typing import IO, Any

import gymnasium

from ppo_dice.envs.gymnasium_backend import GymnasiumEnvironments
from ppo_dice.errors import UserError


def serve() -> None:
    """Answer the messages that come on stdin."""
    requests, answers = sys.stdin.buffer, _take_stdout()
    try:
        order = pickle.load(requests)
        if order.registration is not None:
            gymnasium.registry.setdefault(order.registration.id, order.registration)
        envs = GymnasiumEnvironments(order.env, order.seeds, order.env_kwargs, checked=order.checked)
        _send(answers, "done", envs.spec)
        while True:
            name, argument = pickle.load(requests)
            _send(answers, "done", tuple(envs.step(argument)) if name == "step" else envs.reset())
    except EOFError:
        pass  # the other side has closed the pool, or died
    except UserError as error:
        _send(answers, "user error", str(error))
    except Exception:
        _send(answers, "failure", traceback.format_exc())


def _take_stdout() -> IO[bytes]:
    """Keep stdout for answers, and let what environments print go to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _send(answers: IO[bytes], kind: str, content: Any) -> None:
    try:
        pickle.dump((kind, content), answers, protocol=5)
        answers.flush()
    except BrokenPipeError:
        os._exit(0)  # nobody is left to read it
