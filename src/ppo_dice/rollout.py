"""Policy × environments → `Rollout`: the only loop that steps environments while training."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Shaped

from ppo_dice.envs.contract import Environments
from ppo_dice.envs.spaces import numbers_of
from ppo_dice.errors import UserError
from ppo_dice.types import Actor, Rollout

Act = Callable[[Any, int], Any]


def act(actor: Actor, obs: Shaped[Array, "N O"], noise: Float[Array, "N ..."]) -> Shaped[Array, "N A"]:
    """The actions of one seed's policy in `N` environments, given the noise that decides them."""
    return jax.vmap(lambda o, n: actor(o).sample(n))(obs, noise)


class Episode(NamedTuple):
    """A finished episode: whose (the place of the seed in the population), where, and at which step."""

    member: int
    env: int
    step: int
    ret: float
    length: int


@dataclass(frozen=True)
class Position:
    """Where the S · N environments stand between two rollouts.

    `elapsed` counts the steps of the episode that is learned from; return and length are those of the episode
    that is reported, which may span several: all lives of a game.
    """

    obs: Shaped[np.ndarray, "SN O"]
    elapsed: Shaped[np.ndarray, " SN"]
    episode_return: Float[np.ndarray, " SN"]
    episode_length: Shaped[np.ndarray, " SN"]


class Collected(NamedTuple):
    """A rollout of every seed (leaves have a leading [S]) and what came with it."""

    rollout: Rollout
    position: Position
    episodes: list[Episode]
    env_seconds: float
    act_seconds: float


def start(envs: Environments) -> Position:
    """Reset every environment."""
    count = envs.num_envs
    return Position(envs.reset(), *(np.zeros(count, kind) for kind in (np.int64, np.float64, np.int64)))


def collect(
    envs: Environments, position: Position, choose: Act, n_steps: int, seeds: Sequence[int]
) -> Collected:
    """`n_steps` steps of every environment; row k of the pool is environment k % N of member k // N.

    `choose(obs [S, N, *O], t)` gives the actions [S, N, A]. They are stored as they were sampled; the
    environments clip their own copy.
    """
    n_members, n_envs = len(seeds), envs.num_envs // len(seeds)
    obs, elapsed_now = position.obs, position.elapsed.copy()
    episode_return, episode_length = position.episode_return.copy(), position.episode_length.copy()
    all_obs = np.empty((n_members, n_steps + 1, n_envs, *obs.shape[1:]), obs.dtype)
    final_obs = np.zeros((n_members, n_steps, n_envs, *obs.shape[1:]), obs.dtype)
    reward = np.empty((n_members, n_steps, n_envs), np.float32)
    terminated = np.empty((n_members, n_steps, n_envs), bool)
    truncated = np.empty((n_members, n_steps, n_envs), bool)
    elapsed = np.empty((n_members, n_steps, n_envs), np.int32)
    actions: list[Any] = []
    episodes: list[Episode] = []
    env_seconds = act_seconds = 0.0

    def by_seed(flat: Any) -> Any:
        return flat.reshape(n_members, n_envs, *flat.shape[1:])

    for t in range(n_steps):
        before = time.perf_counter()
        all_obs[:, t] = by_seed(obs)
        elapsed[:, t] = by_seed(elapsed_now)
        action = np.asarray(choose(by_seed(obs), t))
        between = time.perf_counter()
        step = envs.step(action.reshape(n_members * n_envs, -1))
        after = time.perf_counter()
        act_seconds += between - before
        env_seconds += after - between

        actions.append(action)
        obs = step.obs
        reward[:, t] = by_seed(step.reward)
        terminated[:, t] = by_seed(step.terminated)
        truncated[:, t] = by_seed(step.truncated)
        elapsed_now += 1
        episode_return += step.score
        episode_length += 1
        ended = step.ended
        if not ended.any():
            continue
        for row in np.flatnonzero(ended):
            member, env = divmod(int(row), n_envs)
            final_obs[member, t, env] = step.final_obs[row]
            elapsed_now[row] = 0
        for row in np.flatnonzero(step.over):
            member, env = divmod(int(row), n_envs)
            episodes.append(Episode(member, env, t, float(episode_return[row]), int(episode_length[row])))
            episode_return[row], episode_length[row] = 0.0, 0
    all_obs[:, n_steps] = by_seed(obs)

    _refuse_non_finite("a reward", reward, seeds)
    space = envs.spec.observation_space
    _refuse_non_finite("an observation", numbers_of(space, all_obs), seeds)
    _refuse_non_finite("a final observation", numbers_of(space, final_obs), seeds)
    rollout = Rollout(all_obs, final_obs, np.stack(actions, axis=1), reward, terminated, truncated, elapsed)
    new_position = Position(obs, elapsed_now, episode_return, episode_length)
    return Collected(rollout, new_position, episodes, env_seconds, act_seconds)


def _refuse_non_finite(what: str, values: Shaped[np.ndarray, "S ..."], seeds: Sequence[int]) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        member, step = (int(index) for index in np.argwhere(~finite)[0][:2])
        raise non_finite(what, values[~finite][0], f"seed {seeds[member]} at step {step + 1} of the rollout")


def non_finite(what: str, value: Any, whose: str) -> UserError:
    """What to tell a user whose environment returned a number that is not finite."""
    return UserError(
        f"The environment returned {what} that is not finite ({value}), to {whose}; "
        "mend the environment or its wrappers."
    )
