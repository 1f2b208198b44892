"""PPO-DICE and the PPO family: fast on ordinary machines, many seeds at once, checked against ground truth.

>>> from ppo_dice import PPODice
>>> agent = PPODice("Hopper-v5", seeds=10).learn(1_000_000, progress_bar=True)

Names are imported when they are first used, so that `import ppo_dice` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Agent": "ppo_dice.agent",
    "PPO": "ppo_dice.agent",
    "PPODice": "ppo_dice.agent",
    "load": "ppo_dice.agent",
    "DiceConfig": "ppo_dice.config",
    "PPOConfig": "ppo_dice.config",
    "PPODiceConfig": "ppo_dice.config",
    "Sweep": "ppo_dice.sweeps",
    "UserError": "ppo_dice.errors",
    "preset": "ppo_dice.presets",
    "tune": "ppo_dice.tuning",
}
__all__ = [
    "PPO",
    "Agent",
    "DiceConfig",
    "PPOConfig",
    "PPODice",
    "PPODiceConfig",
    "Sweep",
    "UserError",
    "__version__",
    "load",
    "preset",
    "tune",
]

if TYPE_CHECKING:
    from ppo_dice.agent import PPO, Agent, PPODice, load
    from ppo_dice.config import DiceConfig, PPOConfig, PPODiceConfig
    from ppo_dice.errors import UserError
    from ppo_dice.presets import preset
    from ppo_dice.sweeps import Sweep
    from ppo_dice.tuning import tune


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ppo_dice' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
