"""From the name of an environment to a pool of copies, through the backend that runs it best."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium

from ppo_dice.atari_games import game_of, ids_of
from ppo_dice.envs.atari_catalog import (
    ale_games,
    best_atari_backend,
    envpool_games,
    make_atari,
)
from ppo_dice.envs.contract import Environments
from ppo_dice.envs.envpool_backend import EnvPoolEnvironments
from ppo_dice.envs.gymnasium_backend import GymnasiumEnvironments
from ppo_dice.envs.gymnasium_make import EnvLike
from ppo_dice.envs.names import envpool_ids, gymnasium_ids
from ppo_dice.envs.worker_choice import workers_that_pay
from ppo_dice.envs.workers import WorkerEnvironments
from ppo_dice.errors import UserError

# EnvPool reimplements what these packages register; an id that anyone else registered is somebody's own task.
_REIMPLEMENTED = ("gymnasium.", "gymnasium_robotics", "ale_py", "highway_env", "metaworld", "myosuite")


@runtime_checkable
class MakePool(Protocol):
    """A backend: makes one copy of the environment per seed."""

    def __call__(
        self, env: EnvLike, seeds: Sequence[int], env_kwargs: Mapping[str, Any], workers: int | None
    ) -> Environments:
        """Make the pool, or raise a `UserError` that says what is wrong."""
        ...


class _Backend(NamedTuple):
    make: MakePool
    ids: Callable[[], list[str]]


def make_envs(
    env: EnvLike,
    seeds: Sequence[int],
    *,
    backend: str = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    workers: int | None = None,
) -> Environments:
    """Make one copy of `env` per seed.

    `env` is an id, a callable that makes a `gymnasium.Env`, or (for one copy) an environment.
    `backend` "auto" takes EnvPool where it is installed and knows the id, and Gymnasium otherwise, or ale-py
    for Atari's games, which stand behind the same pipeline on every backend.
    `workers` is the number of processes for Gymnasium's environments: 0 for none, None for where it pays.
    """
    if len(seeds) == 0:
        raise UserError("At least one environment is needed.")
    if workers is not None and workers < 0:
        raise UserError(f"The number of workers must be 0 or more, not {workers}.")
    name = _best_backend(env) if backend == "auto" else backend
    if name not in _BACKENDS:
        raise UserError(f"There is no backend {name!r}; choose from {', '.join(['auto', *_BACKENDS])}.")
    return _BACKENDS[name].make(env, seeds, env_kwargs or {}, workers)


def register_backend(name: str, make: MakePool, ids: Callable[[], list[str]] = list) -> None:
    """Add a backend that `make_envs(…, backend=name)` uses; `ids` returns the environments it knows."""
    _BACKENDS[name] = _Backend(make, ids)


def list_environments() -> list[tuple[str, tuple[str, ...]]]:
    """Return every known id with the backends that have it, sorted by id."""
    backends_of: dict[str, tuple[str, ...]] = {}
    for name, backend in _BACKENDS.items():
        for env_id in backend.ids():
            backends_of[env_id] = (*backends_of.get(env_id, ()), name)
    return sorted(backends_of.items())


def _best_backend(env: EnvLike) -> str:
    if (game := _atari_game(env)) is not None:
        return best_atari_backend(game)
    if not isinstance(env, str) or _is_users_own(env) or env not in envpool_ids():
        return "gymnasium"
    return "envpool"


def _atari_game(env: EnvLike) -> str | None:
    return None if isinstance(env, str) and _is_users_own(env) else game_of(env)


def _is_users_own(env_id: str) -> bool:
    spec = gymnasium.registry.get(env_id)
    if spec is None or getattr(spec.entry_point, "__module__", "").startswith("gymnasium."):
        return False  # not registered, or one of Gymnasium's stubs for tasks that have moved
    return not (isinstance(spec.entry_point, str) and spec.entry_point.startswith(_REIMPLEMENTED))


def _make_envpool(
    env: EnvLike, seeds: Sequence[int], env_kwargs: Mapping[str, Any], workers: int | None
) -> Environments:
    if not isinstance(env, str):
        raise UserError("EnvPool runs its own tasks only, by their id; use the backend gymnasium.")
    if (game := _atari_game(env)) is not None and game in envpool_games():
        return make_atari(env, game, seeds, env_kwargs, workers, "envpool")
    if workers:
        raise UserError("EnvPool uses threads; workers are for the backend gymnasium.")
    return EnvPoolEnvironments(env, seeds, env_kwargs)


def _make_ale(
    env: EnvLike, seeds: Sequence[int], env_kwargs: Mapping[str, Any], workers: int | None
) -> Environments:
    game = _atari_game(env)
    if not isinstance(env, str) or game is None:
        raise UserError(
            f"The backend ale runs Atari's games only, by their id, and not "
            f"{env if isinstance(env, str) else 'an environment of your own'}."
        )
    return make_atari(env, game, seeds, env_kwargs, workers, "ale")


def _make_gymnasium(
    env: EnvLike, seeds: Sequence[int], env_kwargs: Mapping[str, Any], workers: int | None
) -> Environments:
    if _atari_game(env) is not None:  # Gymnasium has no Atari but ale-py's
        return _make_ale(env, seeds, env_kwargs, workers)
    if workers is None:
        workers = workers_that_pay(env, env_kwargs, copies=len(seeds))
    if workers == 0:
        return GymnasiumEnvironments(env, seeds, env_kwargs)
    return WorkerEnvironments(env, seeds, env_kwargs, workers=workers)


def _envpool_and_atari_ids() -> list[str]:
    return list(dict.fromkeys([*envpool_ids(), *ids_of(envpool_games())]))


def _ids_but_atari() -> list[str]:
    return [env_id for env_id in gymnasium_ids() if _atari_game(env_id) is None]


_BACKENDS = {
    "envpool": _Backend(_make_envpool, _envpool_and_atari_ids),
    "ale": _Backend(_make_ale, lambda: ids_of(ale_games())),
    "gymnasium": _Backend(_make_gymnasium, _ids_but_atari),
}
