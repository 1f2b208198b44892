"""Where a search looks: ranges and choices of settings, and what each algorithm has where none are given."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ppo_dice.config import PPODiceConfig
from ppo_dice.errors import UserError
from ppo_dice.settings import full_name, read_value, value_text, with_settings

# Numbers that are traced, so that a search compiles once.
PPO_SEARCH: Mapping[str, str] = {
    "learning_rate": "3e-5:3e-3:log",
    "gamma": "0.95,0.98,0.99,0.995,0.999",
    "gae_lambda": "0.8:0.99",
    "clip_range": "0.1:0.4",
    "ent_coef": "1e-5:0.03:log",
}
PPO_DICE_SEARCH: Mapping[str, str] = {
    **PPO_SEARCH,
    "dice.coefficient": "0.01:1:log",
    "dice.learning_rate_factor": "1:30:log",
}


@dataclass(frozen=True)
class Range:
    """Every number between two, both included; whole ones where both are."""

    low: int | float
    high: int | float
    log: bool = False

    def __str__(self) -> str:
        return f"{self.low}:{self.high}" + (":log" if self.log else "")

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be allowed, for all to be."""
        return (self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of these values."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ",".join(map(value_text, self.values))

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be allowed, for all to be."""
        return self.values


def default_search(config: Any) -> Mapping[str, str]:
    """The space of an algorithm, by its config."""
    return PPO_DICE_SEARCH if isinstance(config, PPODiceConfig) else PPO_SEARCH


def read_search(config: Any, search: Mapping[str, Any]) -> dict[str, Range | Choice]:
    """The space that texts (`1e-4:1e-2:log`, `64x64,256x256`) and lists of values mean."""
    space: dict[str, Range | Choice] = {}
    for given, wanted in search.items():
        name = full_name(config, given)
        space[name] = _read(config, name, wanted) if isinstance(wanted, str) else Choice(tuple(wanted))
        for value in space[name].ends:
            with_settings(config, {name: value})  # raises where the value is not allowed
    return space


def split_search(texts: Iterable[str]) -> dict[str, str]:
    """What `NAME=RANGE` from a command line means."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, wanted = text.partition("=")
        if not equals or not wanted:
            raise UserError(
                f"--search takes NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=VALUE,VALUE,…, but is {text!r}."
            )
        if name in found:
            raise UserError(f"{name} is searched twice; give it one range.")
        found[name] = wanted
    return found


def _read(config: Any, name: str, text: str) -> Range | Choice:
    if ":" not in text:
        return Choice(tuple(read_value(config, name, value) for value in text.split(",")))
    low_text, high_text, *scale = text.split(":")
    low, high = (read_value(config, name, end) for end in (low_text, high_text))
    numbers = all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high))
    if not numbers or isinstance(low, bool) or scale not in ([], ["log"]) or not low < high:
        raise UserError(f"{name} needs a range LOW:HIGH or LOW:HIGH:log with LOW < HIGH, but has {text}.")
    if scale and low <= 0:
        raise UserError(
            f"{name} needs a range above 0 to be searched on a logarithmic scale, but has {text}."
        )
    return Range(low, high, log=bool(scale))
