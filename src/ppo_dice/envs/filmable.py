"""From the environment that was trained on to one that draws what happens.

Only Gymnasium's environments can: EnvPool's renderer ends the process. A task whose Gymnasium counterpart
goes by another name, or needs wrappers to show a policy what it saw in training, is to be made here.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

from ppo_dice.atari_games import game_of
from ppo_dice.envs.drawing import is_of_opengl, no_opengl, require_opengl
from ppo_dice.envs.gymnasium_make import EnvLike, make_copy, refused_argument
from ppo_dice.envs.names import envpool_ids
from ppo_dice.errors import UserError

RENDER_MODE = {"render_mode": "rgb_array"}


def make_filmable(env: EnvLike, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make a copy whose `render()` returns frames, or say in one sentence why there is none."""
    made = env if isinstance(env, gymnasium.Env) else _make(env, env_kwargs)
    if made.render_mode != "rgb_array":
        raise cannot_be_filmed(env)
    if type(getattr(made.unwrapped, "model", None)).__module__.startswith("mujoco"):
        require_opengl()
    return made


def cannot_be_filmed(env: EnvLike) -> UserError:
    """What to tell a user whose environment does not draw."""
    name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    return UserError(
        f"{name} cannot be filmed: made with render_mode='rgb_array', an environment must return frames "
        "[height, width, 3] of uint8 from render()."
    )


def _make(env: EnvLike, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    if game_of(env) is not None:
        raise UserError(f"{env} cannot be filmed yet: what trains on Atari's games draws no frames.")
    if isinstance(env, str) and env not in gymnasium.registry and env in envpool_ids():
        raise UserError(f"{env} is a task of EnvPool alone, and only Gymnasium's environments can be filmed.")
    try:
        return make_copy(env, {**env_kwargs, **RENDER_MODE}, first=False)
    except UserError as error:
        cause = error.__cause__
        if is_of_opengl(cause):
            raise no_opengl(cause) from cause  # type: ignore[arg-type]
        if not isinstance(cause, TypeError) or not refused_argument(cause, RENDER_MODE):
            raise
    if isinstance(env, str):
        raise cannot_be_filmed(env)
    return make_copy(env, env_kwargs, first=False)  # a callable may have chosen the mode itself
