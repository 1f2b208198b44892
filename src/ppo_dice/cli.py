"""The command line: `ppo-dice train | tune | evaluate | watch | envs | presets | theory | info`.

Hardly anything is imported before Ctrl-C is taken care of.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ppo_dice import __version__
from ppo_dice.errors import UserError
from ppo_dice.interrupts import INTERRUPTED, interrupts_kept, interrupts_wait

USAGE = f"""\
usage: ppo-dice COMMAND [options]

  train ENV        train on a Gymnasium or EnvPool environment
  tune ENV         search for settings, with Optuna
  evaluate RUN     run a trained population for whole episodes
  watch RUN        film a trained agent
  envs [TEXT]      list environments whose name contains TEXT
  presets [ENV]    show the settings of every preset
  theory           measure bounds and estimators where the truth is known exactly
  info             versions, backends and devices, for a bug report

`ppo-dice COMMAND --help` shows the options of a command.  ppo-dice {__version__}
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; a user's mistake is one sentence and exit status 2."""
    with interrupts_kept():
        status = run(list(sys.argv[1:] if arguments is None else arguments))
    if status == INTERRUPTED:
        _exit_at_once(status)
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run a command and return its exit status."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(__version__)
        return 0
    try:
        with interrupts_wait():  # an import that is cut short can become another error, or a crash
            from ppo_dice.commands import run_command
        return run_command(arguments[0], arguments[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _exit_at_once(status: int) -> NoReturn:
    """Leave without taking the interpreter apart: JAX's threads may still run what was interrupted."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads any more
            stream.flush()
    os._exit(status)
