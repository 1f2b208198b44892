"""Make one copy of a Gymnasium environment, and say in one sentence why where that fails."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium import error

from ppo_dice.atari_games import GAMES, ids_of
from ppo_dice.envs.names import envpool_ids, gymnasium_ids, unknown_environment
from ppo_dice.errors import UserError

EnvLike = str | gymnasium.Env[Any, Any] | Callable[..., gymnasium.Env[Any, Any]]

# What installs the libraries that Gymnasium's own tasks import, by the module that registers the task.
_INSTALL = {
    "gymnasium.envs.mujoco": "ppo-dice[mujoco]",
    "gymnasium.envs.box2d": "gymnasium[box2d]",
    "gymnasium.envs.phys2d": "gymnasium[jax]",
    "gymnasium.envs.tabular": "gymnasium[jax]",
    "gymnasium.envs.toy_text": "gymnasium[toy-text]",
    "gymnasium.envs.classic_control": "gymnasium[classic-control]",
}


def make_copy(env: EnvLike, env_kwargs: Mapping[str, Any], *, first: bool) -> gymnasium.Env[Any, Any]:
    """Make a copy; only the first one speaks of deprecated versions and runs Gymnasium's checker."""
    if isinstance(env, gymnasium.Env):
        if env_kwargs:
            raise UserError("Environment arguments cannot be given to an environment that is already made.")
        return env
    if first:
        return _make(env, env_kwargs, checked=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _make(env, env_kwargs, checked=False)


def _make(env: Any, env_kwargs: Mapping[str, Any], *, checked: bool) -> gymnasium.Env[Any, Any]:
    name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    if not isinstance(env, str) and not callable(env):
        raise UserError(f"An environment is an id, a callable that makes one or a gymnasium.Env, not {name}.")
    try:
        if isinstance(env, str):
            made: Any = gymnasium.make(env, disable_env_checker=None if checked else True, **env_kwargs)
        else:
            made = env(**env_kwargs)
    except UserError:
        raise
    except Exception as cause:
        raise UserError(_explanation(cause, name, env_kwargs)) from cause
    if not isinstance(made, gymnasium.Env):
        raise UserError(f"{name} made {type(made).__name__}, which is not a gymnasium.Env.")
    return made


def _explanation(cause: Exception, name: str, env_kwargs: Mapping[str, Any]) -> str:
    module, colon, env_id = name.rpartition(":")
    if isinstance(cause, error.UnregisteredEnv):
        return unknown_environment(env_id, [*gymnasium_ids(), *envpool_ids(), *ids_of(GAMES)])
    if colon and "importing a module failed" in str(cause):
        reason = str(cause).partition(". Environment registration")[0]
        return f"The module {module!r} of {name!r} cannot be imported: {reason}."
    if isinstance(cause, ImportError | error.DependencyNotInstalled):
        package = _package(env_id)
        if package is not None:
            return f"{name} needs a library that is not installed; run: pip install '{package}'"
    if isinstance(cause, TypeError) and (refused := refused_argument(cause, env_kwargs)):
        return f"{name} does not accept the argument {refused!r}."
    return f"{name} could not be made: {_first_line(cause)}"


def refused_argument(cause: Exception, env_kwargs: Mapping[str, Any]) -> str | None:
    """Return which of the user's arguments a constructor complains about."""
    message = str(cause)
    if "takes no arguments" in message:
        return next(iter(env_kwargs), None)
    return next((name for name in env_kwargs if f"unexpected keyword argument '{name}'" in message), None)


def _package(env_id: str) -> str | None:
    spec = gymnasium.registry.get(env_id)
    entry_point = spec.entry_point if spec is not None else None
    if not isinstance(entry_point, str):
        return None  # a registered stub that explains where its tasks have moved
    return next((package for module, package in _INSTALL.items() if entry_point.startswith(module)), None)


def _first_line(cause: Exception) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
