"""The algorithms by name. Each is one pair of pure functions for one seed, `init` and `update`.

A third party adds an algorithm with `register("mine", MyConfig, "my_package.my_module")`, where the module
defines `init` and `update`; it is imported when it is first asked for.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ppo_dice.config import PPOConfig, PPODiceConfig
from ppo_dice.errors import UserError


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as the driver sees it.

    * `init(observation_kind, action_kind, key, config) -> state`; `state.model` is what is worth keeping,
      and `state.model.actor` maps an observation to a distribution over actions;
    * `update(state, rollout, key, config) -> (state, metrics)`.
    """

    name: str
    config: type[Any]
    init: Callable[..., Any]
    update: Callable[..., Any]


_registry: dict[str, tuple[type[Any], str]] = {
    "ppo": (PPOConfig, "ppo_dice.algorithms.ppo"),
    "ppo-dice": (PPODiceConfig, "ppo_dice.algorithms.ppo_dice"),
}


def register(name: str, config: type[Any], module: str) -> None:
    """Make an algorithm known by name."""
    _registry[name] = (config, module)


def algorithm_names() -> list[str]:
    """Every registered name."""
    return sorted(_registry)


def config_class(name: str) -> type[Any]:
    """The config of an algorithm; imports nothing heavy."""
    if name not in _registry:
        raise UserError(f"There is no algorithm {name!r}; known are: {', '.join(algorithm_names())}.")
    return _registry[name][0]


def get_algorithm(name: str) -> Algorithm:
    """Import an algorithm."""
    config, module_name = config_class(name), _registry[name][1]
    module = importlib.import_module(module_name)
    return Algorithm(name, config, module.init, module.update)
