"""How a contestant answers run.py: its versions first, then a line of numbers for every turn."""

import importlib.metadata
import json
import sys
from collections.abc import Callable, Sequence

Numbers = dict[str, float]


def take_turns(iterate: Callable[[], Numbers], packages: Sequence[str]) -> None:
    """Do one iteration for every line on standard input."""
    _answer({package: importlib.metadata.version(package) for package in packages})
    for _ in sys.stdin:
        _answer(iterate())


def _answer(content: object) -> None:
    print(json.dumps(content), flush=True)
