"""Returns of fixed policies, with frozen statistics."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ppo_dice.envs.contract import Environments
from ppo_dice.population import CompileClock, FusedOverSeeds
from ppo_dice.rollout import non_finite
from ppo_dice.types import Actor

MAX_COPIES = 64
MAX_EPISODE_STEPS = 100_000
"""Where the environment sets no limit, an evaluation episode counts as over after this many steps."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of complete episodes by seed; intervals are over seeds, never over episodes."""

    deterministic: bool
    returns: dict[int, list[float]]
    lengths: dict[int, list[int]]

    @property
    def mean_by_seed(self) -> dict[int, float]:
        """Mean return of each seed."""
        return {seed: float(np.mean(values)) for seed, values in self.returns.items()}

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(list(self.mean_by_seed.values())))

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean over seeds; None for a single seed."""
        return standard_error(list(self.mean_by_seed.values()))


def standard_error(values: list[float]) -> float | None:
    """Sample standard deviation over √n; one value has none."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def together(evaluations: Iterable[Evaluation]) -> Evaluation:
    """Evaluations of some seeds each as one of all of them."""
    parts = list(evaluations)
    returns = {seed: values for part in parts for seed, values in part.returns.items()}
    lengths = {seed: values for part in parts for seed, values in part.lengths.items()}
    return Evaluation(parts[0].deterministic, returns, lengths)


def groups_of_seeds(seeds: tuple[int, ...], copies: int) -> list[tuple[int, ...]]:
    """Seeds to be evaluated at the same time, in `copies` environments each.

    The number of copies decides which episodes are run. It must not depend on how many seeds there are, or
    seed k of a population would be judged by other episodes than the single run with seed k.
    """
    size = max(1, MAX_COPIES // copies)
    return [seeds[k : k + size] for k in range(0, len(seeds), size)]


def evaluate(
    actor: Actor, seeds: tuple[int, ...], envs: Environments, episodes: int, *, deterministic: bool
) -> Evaluation:
    """Run `episodes` episodes of every seed; leaves of `actor` have a leading [S].

    Episodes are the reported ones: whole games in points, where learning is given something else.

    Each copy runs a number of episodes fixed beforehand: taking whichever end first would favour short ones.
    """
    n_envs = envs.num_envs // len(seeds)
    quota = np.asarray([episodes // n_envs + (env < episodes % n_envs) for env in range(n_envs)] * len(seeds))
    returns: list[list[float]] = [[] for _ in quota]
    lengths: list[list[int]] = [[] for _ in quota]
    episode_return, episode_length = np.zeros(len(quota)), np.zeros(len(quota), np.int64)

    actor = jax.device_put(actor)
    obs = envs.reset()
    shape = (len(seeds), n_envs, *obs.shape[1:])
    seed_array = np.asarray(seeds, np.uint32)
    choose = _choose_actions(deterministic)
    executable = choose.prepare(actor, obs.reshape(shape), seed_array, np.zeros_like(seed_array))
    t = 0
    while any(len(done) < wanted for done, wanted in zip(returns, quota)):
        _refuse_non_finite("an observation", obs, seeds, t)
        time_step = np.full_like(seed_array, t)
        action = np.asarray(executable(obs.reshape(shape), seed_array, time_step))
        step = envs.step(action.reshape(len(quota), -1))
        obs, t = step.obs, t + 1
        _refuse_non_finite("a reward", step.reward, seeds, t)
        episode_return += step.score
        episode_length += 1
        over = step.over | (episode_length >= MAX_EPISODE_STEPS)
        for row in np.flatnonzero(over):
            if len(returns[row]) < quota[row]:
                returns[row].append(float(episode_return[row]))
                lengths[row].append(int(episode_length[row]))
            episode_return[row], episode_length[row] = 0.0, 0
    return Evaluation(deterministic, _by_seed(returns, seeds), _by_seed(lengths, seeds))


@functools.cache
def _choose_actions(deterministic: bool) -> FusedOverSeeds:
    """Kept for the life of the process, so that an evaluation of the same shapes compiles nothing."""
    return FusedOverSeeds(partial(_act, deterministic=deterministic), CompileClock())


def _act(actor: Actor, obs: Any, seed: Any, t: Any, *, deterministic: bool) -> Any:
    distributions = jax.vmap(actor)(obs)
    if deterministic:
        return jax.vmap(lambda distribution: distribution.mode())(distributions)
    noise = actor.policy.noise(jax.random.fold_in(jax.random.key(seed), t), obs.shape[:1])
    return jax.vmap(lambda distribution, n: distribution.sample(n))(distributions, noise)


def _refuse_non_finite(what: str, values: np.ndarray, seeds: tuple[int, ...], t: int) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        member = int(np.argwhere(~finite)[0][0]) * len(seeds) // len(values)
        raise non_finite(what, values[~finite][0], f"seed {seeds[member]} after {t} steps of the evaluation")


def _by_seed(rows: list[list[Any]], seeds: tuple[int, ...]) -> dict[int, list[Any]]:
    n_envs = len(rows) // len(seeds)
    return {
        seed: [value for row in rows[k * n_envs : (k + 1) * n_envs] for value in row]
        for k, seed in enumerate(seeds)
    }
