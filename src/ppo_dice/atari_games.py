"""Atari's games and their ids.

Every id of a game means the same here, whichever library runs it: the paper's pipeline.
"""

from collections.abc import Sequence
from typing import Any

_FOR_ONE_PLAYER = """
adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon bank_heist
basic_math battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival casino centipede
chopper_command crazy_climber crossbow darkchambers defender demon_attack donkey_kong double_dunk
earthworld elevator_action enduro entombed et fishing_derby flag_capture freeway frogger frostbite
galaxian gopher gravitar hangman haunted_house hero human_cannonball ice_hockey jamesbond journey_escape
kaboom kangaroo keystone_kapers king_kong klax koolaid krull kung_fu_master laser_gates lost_luggage
mario_bros miniature_golf montezuma_revenge mr_do ms_pacman name_this_game othello pacman phoenix pitfall
pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank seaquest sir_lancelot skiing solaris
space_invaders space_war star_gunner superman surround tennis tetris tic_tac_toe_3d time_pilot trondead
turmoil tutankham up_n_down venture video_checkers video_chess video_cube video_pinball wizard_of_wor
word_zapper yars_revenge zaxxon
"""
_WITHOUT_FIRE_RESET = """
asterix backgammon crazy_climber freeway frogger journey_escape koolaid kung_fu_master lost_luggage
ms_pacman pacman skiing surround tutankham video_checkers
"""

GAMES = tuple(_FOR_ONE_PLAYER.split())
"""Every game for one player by the name of its ROM."""

WITHOUT_FIRE_RESET = frozenset(_WITHOUT_FIRE_RESET.split())
"""Where FIRE is no action of the game, or there is no no-op before it."""


def game_of(env: Any) -> str | None:
    """The game that an id means; None for everything else.

    `Pong-v5`, `ALE/Pong-v5` and the `PongNoFrameskip-v4` of the paper's time are the same game.
    """
    return _GAME_OF_ID.get(env.removeprefix("ale_py:")) if isinstance(env, str) else None


def envpool_id(game: str) -> str:
    """The id of a game in EnvPool, e.g. `AirRaid-v5`."""
    return "".join(word.capitalize() for word in game.split("_")) + "-v5"


def ale_id(game: str) -> str:
    """The id of a game in ale-py and Gymnasium, e.g. `ALE/AirRaid-v5`."""
    return f"ALE/{game.title().replace('_', '')}-v5"


def ids_of(games: Sequence[str]) -> list[str]:
    """Both ids of each game."""
    return [env_id for game in games for env_id in (envpool_id(game), ale_id(game))]


def _every_id(game: str) -> list[str]:
    names = {envpool_id(game).removesuffix("-v5"), ale_id(game).removeprefix("ALE/").removesuffix("-v5")}
    return [ale_id(game), *(f"{name}{version}" for name in names for version in ("-v5", "NoFrameskip-v4"))]


_GAME_OF_ID = {env_id: game for game in GAMES for env_id in _every_id(game)}
