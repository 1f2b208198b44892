"""Many values of settings at once: numbers that are traced make one population, values × seeds.

What fixes compiled code (integers, names, sizes of layers) cannot differ within a population; such values
make populations that are trained one after another. Either way the run of a value is its single run.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ppo_dice.agent import Agent, agent_class
from ppo_dice.config import RunConfig
from ppo_dice.envs.spaces import action_size, observation_bytes
from ppo_dice.errors import UserError
from ppo_dice.interrupts import interrupts_kept, interrupts_wait
from ppo_dice.limits import refuse_rollout_beyond_memory, refuse_too_many_copies
from ppo_dice.presets import preset as make_preset
from ppo_dice.progress import progress_display
from ppo_dice.run_folder import RunFolder
from ppo_dice.settings import flat_settings, value_text, with_settings
from ppo_dice.sweep_folder import SweepFolder, Variant
from ppo_dice.training import Iteration, Population, n_iterations_for, train


class Sweep:
    """An agent for every combination of values, all with the same seeds.

    A *list* of values is swept, whatever else is a setting like those of an agent:
    `Sweep("CartPole-v1", algo="ppo", gae_lambda=[0.9, 0.95], n_epochs=4, seeds=5)`. Several lists make
    a grid. A dict sweeps settings of the config within the config: `dice={"coefficient": [0.03, 0.1]}`.
    `variants` holds the agents, before, during and after `learn`.
    """

    def __init__(
        self,
        env: Any,
        *,
        algo: str | type[Agent] = "ppo-dice",
        seed: int = 0,
        seeds: int = 1,
        preset: str = "default",
        config: Any = None,
        backend: str = "auto",
        workers: int | None = None,
        env_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        kind = agent_class(algo) if isinstance(algo, str) else algo
        base = make_preset(kind.algorithm, env, preset) if config is None else config
        fixed, swept = _fixed_and_swept(base, settings)
        combinations = [dict(zip(swept, values)) for values in itertools.product(*swept.values())]
        configs = [with_settings(base, fixed | values) for values in combinations]
        self.run = RunConfig(seed=seed, seeds=seeds, backend=backend, workers=workers)
        for group in _by_structure(configs):
            refuse_too_many_copies(configs[group[0]].n_envs, seeds * len(group))
            refuse_rollout_beyond_memory(configs[group[0]], seeds * len(group))
        first = kind(
            env,
            seed=seed,
            seeds=seeds,
            config=configs[0],
            backend=backend,
            workers=workers,
            env_kwargs=env_kwargs,
        )
        first.close()  # a population has a pool of its own
        agents = [first, *(first.with_config(config) for config in configs[1:])]
        self.swept = tuple(swept)
        self.variants = [Variant(values, agent) for values, agent in zip(combinations, agents)]
        self.populations = [[self.variants[k] for k in group] for group in _by_structure(configs)]
        for population in self.populations:
            refuse_rollout_beyond_memory(
                population[0].agent.config,
                seeds * len(population),
                observation_bytes=observation_bytes(first.spec.observation_space),
                action_size=action_size(first.spec.action_space),
            )

    def learn(
        self, total_timesteps: int, *, progress_bar: bool = False, out: str | Path | None = None
    ) -> "Sweep":
        """Train every seed of every value for `total_timesteps` steps, rounded up to whole iterations.

        With `out`, every value has a run's folder in there, beside a table of all as JSON and a picture.
        Ctrl-C leaves everything usable. A value of which a number is not finite stops alone.
        """
        run = dataclasses.replace(self.run, total_timesteps=total_timesteps)
        folder = None if out is None else SweepFolder(Path(out), self.variants)
        for variant in self.variants:
            variant.complete = False
        try:
            for population in self.populations:
                if folder:
                    folder.write(run)
                able = [variant for variant in population if not variant.failure]
                if able:
                    _train_population(able, run, folder, progress_bar=progress_bar)
        finally:
            if folder:
                with interrupts_wait():
                    folder.write(run)
                    folder.draw()
        return self

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every value."""
        return tuple(self.run.seed_values)

    def __getitem__(self, name: str) -> Agent:
        """The agent of a value, by its name: `sweep["gae_lambda=0.9"]`."""
        by_name = {variant.name: variant.agent for variant in self.variants}
        if name not in by_name:
            raise UserError(f"There is no {name} here; there are: {'; '.join(by_name)}.")
        return by_name[name]

    @property
    def best(self) -> Variant:
        """The variant with the highest mean; chosen among many, its mean is optimistic."""
        known = [variant for variant in self.variants if variant.mean is not None and not variant.failure]
        if not known:
            raise UserError("No value has a return of every seed yet.")
        return max(known, key=lambda variant: variant.mean or 0.0)

    def table(self) -> str:
        """Mean ± standard error over seeds and the steps of every value, as text."""
        head = [*self.swept, "return", "steps", ""]
        rows = [
            [*map(value_text, variant.values.values()), *_result_cells(variant)] for variant in self.variants
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in (head, *rows)]
        return "\n".join(line.rstrip() for line in lines)


def _result_cells(variant: Variant) -> list[str]:
    error = "" if variant.standard_error is None else f" ± {variant.standard_error:.1f}"
    mean = "–" if variant.mean is None else f"{variant.mean:.1f}{error}"
    remark = "" if variant.complete else variant.state
    return [mean, f"{variant.env_steps:,}", remark + (f": {variant.failure}" if variant.failure else "")]


def _fixed_and_swept(config: Any, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    fixed: dict[str, Any] = {}
    swept: dict[str, list[Any]] = {}
    for name, value in flat_settings(config, settings).items():
        if isinstance(value, list | range | np.ndarray):
            values = [one.item() if isinstance(one, np.generic) else one for one in value]
            swept[name] = [tuple(one) if isinstance(one, list) else one for one in values]
        else:
            fixed[name] = value
    if not swept or not all(swept.values()):
        raise UserError(
            "A sweep needs a list of values for at least one setting, e.g. gae_lambda=[0.9, 0.95]."
        )
    for name, values in swept.items():
        twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
        if twice is not None:
            raise UserError(f"{name} is given {value_text(twice)} twice.")
    return fixed, swept


def _by_structure(configs: Sequence[Any]) -> list[list[int]]:
    """The places of the configs that one compiled program can serve, group by group."""
    groups: dict[Any, list[int]] = {}
    for place, config in enumerate(configs):
        groups.setdefault(jax.tree.structure(config), []).append(place)
    return list(groups.values())


def _train_population(
    variants: list[Variant], run: RunConfig, folder: SweepFolder | None, *, progress_bar: bool
) -> None:
    """Train variants side by side, as `Agent.learn` trains one."""
    agents = [variant.agent for variant in variants]
    first, total = agents[0], run.total_timesteps
    last_iteration = first.population.iteration + n_iterations_for(total, first.config)
    display = progress_display(last_iteration * first.config.batch_size, enabled=progress_bar)
    population = _joined([agent.population for agent in agents])
    configs = [agent.config for agent in agents for _ in agent.seeds]
    envs = first._make_envs(first.config.n_envs, segment=first._segment, seeds=population.seeds)
    for agent in agents:
        agent._segment, agent.spec = agent._segment + 1, envs.spec
    with (
        closing(envs),
        _recorded(variants, run, folder) as records,
        interrupts_kept() as raise_lost_interrupt,
        display,
    ):
        for iteration in train(first._algorithm, envs, population, configs, total, keep_going=True):
            with interrupts_wait():  # every agent and its folder tell the same story
                for variant, part in zip(variants, _parts(iteration, len(first.seeds))):
                    _advance(variant, part, records.get(variant.name))
                    variant.complete = variant.agent.population.iteration == last_iteration
            display.show(iteration)
            raise_lost_interrupt()
            if all(variant.failure for variant in variants):
                break


def _advance(variant: Variant, iteration: Iteration, record: RunFolder | None) -> None:
    if iteration.failures:
        variant.failure = variant.failure or next(iter(iteration.failures.values()))
        return
    variant.agent._note(iteration)
    if record:
        record.record(iteration, None, variant.agent.save)


@contextmanager
def _recorded(
    variants: list[Variant], run: RunConfig, folder: SweepFolder | None
) -> Iterator[dict[str, RunFolder]]:
    """A run's folder by the name of each variant; what is begun is finished, whatever happens."""
    with ExitStack() as ending:
        records: dict[str, RunFolder] = {}
        with interrupts_wait():
            for variant in variants:
                if folder is None:
                    break
                record = records[variant.name] = RunFolder(folder.path_of(variant))
                ending.callback(_finish, variant, record)
                description, options = variant.agent.description(), dataclasses.asdict(run)
                record.begin_sinks(description, options)
                record.begin(description, options)
        yield records


def _finish(variant: Variant, record: RunFolder) -> None:
    agent, stopped = variant.agent, variant.failure or (None if variant.complete else "interrupted")
    with interrupts_wait():
        if record.begun:
            record.finish(agent.save, agent.final_return, complete=variant.complete, stopped=stopped)
        record.end_sinks()


def _joined(populations: Sequence[Population]) -> Population:
    """One population of the members of several, which have done the same number of iterations."""
    state = jax.tree.map(
        lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]),
        *(population.state for population in populations),
    )
    seeds = tuple(seed for population in populations for seed in population.seeds)
    return Population(seeds, state, populations[0].iteration)


def _parts(iteration: Iteration, size: int) -> Iterator[Iteration]:
    """The same iteration as each `size` members in a row would have had it alone."""
    whole = iteration.population
    for begin in range(0, len(whole.seeds), size):
        members = slice(begin, begin + size)
        state = jax.tree.map(lambda leaf, members=members: leaf[members], whole.state)
        yield dataclasses.replace(
            iteration,
            population=Population(whole.seeds[members], state, whole.iteration),
            metrics=iteration.metrics[members],
            episodes=[
                episode._replace(member=episode.member - begin)
                for episode in iteration.episodes
                if begin <= episode.member < begin + size
            ],
            failures={k - begin: text for k, text in iteration.failures.items() if begin <= k < begin + size},
        )
