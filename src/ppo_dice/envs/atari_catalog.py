"""Which library runs a game of Atari's, and which ids that makes known."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from ppo_dice.atari_games import GAMES, ale_id, envpool_id
from ppo_dice.atari_settings import AtariSettings
from ppo_dice.envs.ale_backend import AleEmulators
from ppo_dice.envs.atari_envpool import EnvPoolEmulators
from ppo_dice.envs.atari_pipeline import AtariEnvironments, Emulators
from ppo_dice.envs.names import envpool_ids
from ppo_dice.errors import UserError

INSTALL = "pip install 'ppo-dice[atari]'"


def make_atari(
    env_id: str,
    game: str,
    seeds: Sequence[int],
    env_kwargs: Mapping[str, Any],
    workers: int | None,
    backend: str,
) -> AtariEnvironments:
    """Put the pipeline around one copy of the game per seed."""
    settings = AtariSettings.of(env_kwargs)
    if workers:
        raise UserError("Atari's emulators use threads; workers are for other environments of Gymnasium.")
    emulators: Emulators = (EnvPoolEmulators if backend == "envpool" else AleEmulators)(game, settings, seeds)
    return AtariEnvironments(env_id, game, settings, emulators, len(seeds))


def best_atari_backend(game: str) -> str:
    """EnvPool where it is installed, else ale-py."""
    if game in envpool_games():
        return "envpool"
    if not ale_games():
        raise UserError(f"{ale_id(game)} needs EnvPool or ale-py; run: {INSTALL}")
    return "ale"


def envpool_games() -> tuple[str, ...]:
    """The games that EnvPool has."""
    known = set(envpool_ids())
    return tuple(game for game in GAMES if envpool_id(game) in known)


def ale_games() -> tuple[str, ...]:
    """The games that ale-py has: all, or none where it is not installed."""
    return GAMES if importlib.util.find_spec("ale_py") else ()
