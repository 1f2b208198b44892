"""Collect → update, all seeds at once: a generator of iterations that knows nothing of files."""

import functools
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from ppo_dice.algorithms import Algorithm
from ppo_dice.envs.contract import Environments
from ppo_dice.envs.spaces import category_counts, image_spaces, observation_size
from ppo_dice.errors import UserError
from ppo_dice.population import CompileClock, FusedOverSeeds, OverSeeds, stack, unstack
from ppo_dice.rollout import Collected, Episode, Position, act, collect, start
from ppo_dice.types import ActionKind, Actor, ImageKind, Metrics, ObservationKind, Rollout, traced_config

RECENT, PAPER_RECENT = 100, 10
"""Episodes in the running mean: that of Stable-Baselines3's `rollout/ep_rew_mean`, and the paper's metric."""


@dataclass(frozen=True)
class Population:
    """The training state of every seed; leaves of `state` have a leading [S]."""

    seeds: tuple[int, ...]
    state: Any
    iteration: int = 0


@dataclass(frozen=True)
class Iteration:
    """What one iteration did."""

    population: Population
    env_steps: int
    """Steps per seed since training began, this iteration's included."""
    steps: int
    """Steps per seed of this iteration."""
    metrics: list[dict[str, float]]
    """By seed; a quantity that does not exist yet (no episode has ended) is left out."""
    episodes: list[Episode]
    failures: Mapping[int, str] = field(default_factory=dict)
    """Members that have stopped learning because a number was not finite, and which; they act on."""


class NonFiniteError(RuntimeError):
    """Training produced a number that is not finite."""


class ReturnWindow:
    """The last episodes of one seed."""

    def __init__(self) -> None:
        self._episodes: deque[Episode] = deque(maxlen=RECENT)

    def append(self, episode: Episode) -> None:
        """Take in a finished episode."""
        self._episodes.append(episode)

    def metrics(self) -> dict[str, float]:
        """Running means, once there is an episode."""
        if not self._episodes:
            return {}
        last = list(self._episodes)[-PAPER_RECENT:]
        return {
            "rollout/ep_rew_mean": float(np.mean([episode.ret for episode in self._episodes])),
            "rollout/ep_len_mean": float(np.mean([episode.length for episode in self._episodes])),
            "rollout/last_10_return": float(np.mean([episode.ret for episode in last])),
        }


def action_kind(space: Any) -> ActionKind:
    """What a policy must put out for an action space."""
    counts = category_counts(space)
    return ActionKind(counts=counts) if counts else ActionKind(size=int(np.prod(space.shape)))


def observation_kind(space: Any) -> ObservationKind:
    """What a network must read for an observation space."""
    return ObservationKind(observation_size(space), tuple(map(_image_kind, image_spaces(space))))


def _image_kind(space: Any) -> ImageKind:
    """The channels are along the shorter one of the first and the last of three axes."""
    highest = float(np.max(space.high))
    first, middle, *rest = space.shape
    last = rest[0] if rest else 1
    if rest and first < last:
        return ImageKind(middle, last, channels=first, channels_first=True, highest=highest)
    return ImageKind(first, middle, channels=last, highest=highest)


def init_population(algorithm: Algorithm, envs_spec: Any, seeds: tuple[int, ...], config: Any) -> Population:
    """Fresh states, each from its own seed alone."""
    observation = observation_kind(envs_spec.observation_space)
    kind = action_kind(envs_spec.action_space)

    @jax.jit
    def init(seed: Any, config: Any) -> Any:
        return algorithm.init(observation, kind, jax.random.key(seed), config)

    traced = traced_config(config)
    return Population(seeds, stack([init(np.uint32(seed), traced) for seed in seeds]))


def train(
    algorithm: Algorithm,
    envs: Environments,
    population: Population,
    config: Any,
    total_timesteps: int,
    *,
    keep_going: bool = False,
) -> Iterator[Iteration]:
    """Train every seed for `total_timesteps` steps, rounded up to whole iterations.

    Seed k draws from the key (k, iteration) only, so what it does depends on nothing but itself. `config` is
    that of every member, or a sequence of one for each, which then differ in numbers that are traced alone.
    With `keep_going` a number that is not finite ends the learning of its member instead of that of all.
    """
    configs = _config_of_each(config, len(population.seeds))
    config = configs[0]
    stages = _stages(algorithm, config.n_steps, config.n_envs)
    failures: dict[int, str] = {}
    windows = [ReturnWindow() for _ in population.seeds]
    position = start(envs)
    n_iterations = n_iterations_for(total_timesteps, config)
    for done in range(n_iterations):
        annealed = {id(one): one.annealed(done / n_iterations) for one in configs}
        in_force = [annealed[id(one)] for one in configs]
        lap = _Lap(stages.clock)
        collected = stages.collect(envs, position, population)
        lap.collected()
        before = population
        population, learned = stages.update(population, collected.rollout, in_force)
        times = lap.finish(collected, len(population.seeds) * config.batch_size)
        position = collected.position

        for episode in collected.episodes:
            windows[episode.member].append(episode)
        metrics = [
            window.metrics()
            | times
            | {f"train/{name}": getattr(now, name) for name in now.annealed_fields}
            | {tag: float(values[k]) for tag, values in learned.items()}
            for k, (window, now) in enumerate(zip(windows, in_force))
        ]
        env_steps = population.iteration * config.batch_size
        failures = _non_finite(population.seeds, metrics, env_steps) | failures
        if failures and not keep_going:
            raise NonFiniteError(next(iter(failures.values())))
        population = _with_members_of(before, population, failures)
        yield Iteration(population, env_steps, config.batch_size, metrics, collected.episodes, failures)


def n_iterations_for(total_timesteps: int, config: Any) -> int:
    """Iterations that `total_timesteps` steps per seed take, rounded up."""
    return -(-total_timesteps // int(config.batch_size))


def _config_of_each(config: Any, members: int) -> Sequence[Any]:
    if not isinstance(config, Sequence):
        return [config] * members
    if len(config) != members or len({jax.tree.structure(one) for one in config}) != 1:
        raise UserError(f"{members} members need as many configs, which differ in traced numbers alone.")
    return config


def _with_members_of(before: Population, after: Population, members: Mapping[int, str]) -> Population:
    """The later population, but these members as they were."""
    if not members:
        return after
    old, new = unstack(before.state), unstack(after.state)
    state = stack([old[k] if k in members else new[k] for k in range(len(new))])
    return replace(after, state=state)


class _Stages:
    """The compiled parts of an iteration, for every seed of a population."""

    def __init__(self, algorithm: Algorithm, n_steps: int, n_envs: int) -> None:
        self.clock = CompileClock()
        self._n_steps = n_steps

        def draw_noise(actor: Actor, seed: Any, iteration: Any) -> Any:
            return actor.policy.noise(_key(seed, iteration, 0), (n_steps, n_envs))

        def update(state: Any, rollout: Rollout, seed: Any, iteration: Any, config: Any) -> Any:
            return algorithm.update(state, rollout, _key(seed, iteration, 1), config)

        self._draw_noise = OverSeeds(draw_noise, self.clock)
        self._choose_actions = FusedOverSeeds(act, self.clock)
        self._update = OverSeeds(update, self.clock)

    def collect(self, envs: Environments, position: Position, population: Population) -> Collected:
        actor = jax.device_put(population.state.model.actor)
        noise = self._draw_noise(actor, *_seeds_and_iteration(population))
        noise = np.ascontiguousarray(np.swapaxes(noise, 0, 1))
        obs = position.obs.reshape(len(population.seeds), -1, *position.obs.shape[1:])
        choose = self._choose_actions.prepare(actor, obs, noise[0])
        with envs.stepping():
            return collect(
                envs, position, lambda obs, t: choose(obs, noise[t]), self._n_steps, population.seeds
            )

    def update(
        self, population: Population, rollout: Rollout, configs: Sequence[Any]
    ) -> tuple[Population, Metrics]:
        numbers = stack([traced_config(config) for config in configs])
        state, metrics = self._update(population.state, rollout, *_seeds_and_iteration(population), numbers)
        return replace(population, state=state, iteration=population.iteration + 1), metrics


@functools.cache
def _stages(algorithm: Algorithm, n_steps: int, n_envs: int) -> _Stages:
    """Kept for the life of the process, so that a second run of the same shapes compiles nothing."""
    return _Stages(algorithm, n_steps, n_envs)


def _seeds_and_iteration(population: Population) -> tuple[Any, Any]:
    seeds = np.asarray(population.seeds, np.uint32)
    return seeds, np.full_like(seeds, population.iteration)


class _Lap:
    """Splits the time of one iteration; what went into compilation counts as that alone."""

    def __init__(self, clock: CompileClock) -> None:
        self._clock = clock
        self._marks = [(time.perf_counter(), clock.seconds)]

    def collected(self) -> None:
        self._marks.append((time.perf_counter(), self._clock.seconds))

    def finish(self, collected: Collected, steps: int) -> dict[str, float]:
        self.collected()
        (began, compiled_0), (learning, compiled_1), (ended, compiled_2) = self._marks
        return {
            "time/fps": steps / (ended - began),
            "time/env_seconds": collected.env_seconds,
            "time/act_seconds": collected.act_seconds,
            "time/learn_seconds": ended - learning - (compiled_2 - compiled_1),
            "time/compile_seconds": compiled_2 - compiled_0,
        }


def _key(seed: Any, iteration: Any, purpose: int) -> Any:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), iteration), purpose)


def _non_finite(seeds: tuple[int, ...], metrics: list[dict[str, float]], env_steps: int) -> dict[int, str]:
    """What to say of the first metric that is not finite, of every member that has one."""
    found: dict[int, str] = {}
    for member, (seed, row) in enumerate(zip(seeds, metrics)):
        tag = next((tag for tag, value in row.items() if not math.isfinite(value)), None)
        if tag is not None:
            found[member] = (
                f"{tag} became {row[tag]} for seed {seed} in the iteration that ended at step {env_steps}; "
                "a smaller learning rate or normalised observations and rewards usually help."
            )
    return found
