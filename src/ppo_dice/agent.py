"""The facade people know: `learn`, `predict`, `evaluate`, `save`, `load`."""

import copy
import dataclasses
import difflib
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import gymnasium
import jax
import numpy as np

from ppo_dice.algorithms import config_class, get_algorithm
from ppo_dice.callbacks import CallbackLike, Callbacks, Training
from ppo_dice.checkpoint import load_arrays, read_description, save_arrays
from ppo_dice.config import FilmConfig, RunConfig
from ppo_dice.envs import (
    Environments,
    EnvSpec,
    environment_seeds,
    flatten_observations,
    make_envs,
    space_from_json,
    space_to_json,
    to_env_actions,
)
from ppo_dice.envs.contract import refuse_other_spaces
from ppo_dice.envs.seeding import Purpose
from ppo_dice.envs.spaces import action_size, observation_bytes, stack_observations, unstack_actions
from ppo_dice.errors import UserError
from ppo_dice.evaluation import MAX_COPIES, Evaluation, evaluate, groups_of_seeds, together
from ppo_dice.limits import refuse_rollout_beyond_memory, refuse_too_many_copies
from ppo_dice.population import select, stack, unstack
from ppo_dice.presets import preset as make_preset
from ppo_dice.progress import progress_display
from ppo_dice.recorded_run import RecordedRun
from ppo_dice.run_folder import MODEL_FILE, RunFolder
from ppo_dice.tracking import Sink, chosen_sinks
from ppo_dice.training import Iteration, Population, init_population, n_iterations_for, train
from ppo_dice.types import Actor
from ppo_dice.video import Film, make_film

MODEL_SUFFIX = ".safetensors"


AnyAgent = TypeVar("AnyAgent", bound="Agent")


class Agent:
    """A population of agents, one per seed, trained side by side on one environment.

    `env` is an id (`"Hopper-v5"`, `"my_package.envs:Mine-v0"`), a callable that makes a Gymnasium
    environment, or one that is already made where one copy is enough. Settings start from a preset, and
    keywords override its fields: `PPO("Hopper-v5", seeds=10, learning_rate=1e-3)`. A dict overrides fields of
    a config within the config: `PPODice("Hopper-v5", dice={"coefficient": 0.5})`.
    """

    algorithm: ClassVar[str]

    def __init__(
        self,
        env: Any,
        *,
        seed: int = 0,
        seeds: int = 1,
        preset: str = "default",
        config: Any = None,
        backend: str = "auto",
        workers: int | None = None,
        env_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if env is None:
            raise UserError(
                "There is no environment; give an id, a callable that makes one or a gymnasium.Env."
            )
        self.run = RunConfig(seed=seed, seeds=seeds, backend=backend, workers=workers)
        self.env, self.env_kwargs = env, dict(env_kwargs or {})
        base = make_preset(self.algorithm, env, preset) if config is None else config
        self.config = _override(base, settings)
        refuse_too_many_copies(self.config.n_envs, self.run.seeds)
        refuse_rollout_beyond_memory(self.config, self.run.seeds)  # whatever the environment
        self._segment = 0
        self._next_envs: Environments | None = self._make_envs(self.config.n_envs, segment=0)
        self.spec: EnvSpec = self._next_envs.spec
        refuse_rollout_beyond_memory(
            self.config,
            self.run.seeds,
            observation_bytes=observation_bytes(self.spec.observation_space),
            action_size=action_size(self.spec.action_space),
        )
        self._begin(tuple(self.run.seed_values))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the population."""
        return self.population.seeds

    def learn(
        self: AnyAgent,
        total_timesteps: int,
        callback: CallbackLike | Sequence[CallbackLike] | None = None,
        *,
        progress_bar: bool = False,
        out: str | Path | None = None,
        track: bool | Sink | Sequence[Sink] = False,
    ) -> AnyAgent:
        """Train every seed for `total_timesteps` steps, rounded up to whole iterations.

        Callbacks are called after every iteration and may end the run; `stop_reason` says why. With `out`,
        the run is recorded in that folder, and `track` shows it elsewhere too: in Weights & Biases (True), or
        in sinks of one's own. Called again, training goes on from where it stands, with new episodes and the
        learning-rate schedule from its start. Ctrl-C leaves everything usable.
        """
        run = dataclasses.replace(self.run, total_timesteps=total_timesteps)
        callbacks, sinks = Callbacks(callback), chosen_sinks(track)
        if sinks and out is None:
            raise UserError("A run that is tracked is recorded in a folder too; name it with out=….")
        folder = None if out is None else RunFolder(Path(out), sinks)
        envs = self._next_envs or self._make_envs(self.config.n_envs, segment=self._segment)
        self._next_envs, self._segment = None, self._segment + 1
        self.spec = envs.spec  # what is loaded may be trained on by another backend
        self._train(envs, run, folder, callbacks, progress_bar)
        return self

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        *,
        seed: int | None = None,
    ) -> tuple[Any, Any]:
        """Actions for one observation or a batch of them, ready to be given to the environment.

        `seed` picks a member of the population by its seed; the first acts where none is named. The second
        value returned is `state`, as it came: these policies have no memory.
        """
        member = self._member(seed)
        space = self.spec.observation_space
        single = _is_single(space, observation)
        batch = stack_observations(space, [observation]) if single else observation
        self._predictions += 1
        action = _predict(
            self._actors[member],
            flatten_observations(space, batch),
            np.uint32(self.seeds[member]),
            np.uint32(self._predictions),
            deterministic=deterministic,
        )
        env_action = to_env_actions(self.spec.action_space, np.asarray(action))
        return (unstack_actions(self.spec.action_space, env_action)[0] if single else env_action), state

    def evaluate(
        self,
        episodes: int = 10,
        *,
        deterministic: bool = True,
        seed: int | None = None,
        env_seed: int = 0,
        env: Any = None,
    ) -> Evaluation:
        """Run complete episodes of every seed (or of one) with frozen statistics, in `env` if it is given."""
        if episodes < 1:
            raise UserError(f"episodes must be at least 1, but is {episodes}.")
        seeds = self.seeds if seed is None else (self.seeds[self._member(seed)],)
        is_object = isinstance(self.env if env is None else env, gymnasium.Env)
        copies = 1 if is_object else min(episodes, MAX_COPIES)
        if is_object and len(seeds) > 1:
            raise UserError("One environment object can evaluate one seed at a time; name it with seed=….")

        def evaluate_some(seeds: tuple[int, ...]) -> Evaluation:
            actors = stack([self._actors[self._member(one)] for one in seeds])
            envs = self._make_envs(copies, segment=env_seed, purpose="evaluate", seeds=seeds, env=env)
            try:
                return evaluate(actors, seeds, envs, episodes, deterministic=deterministic)
            finally:
                envs.close()

        return together(evaluate_some(some) for some in groups_of_seeds(seeds, copies))

    def check_evaluation(self, env: Any = None) -> None:
        """Refuse an environment in which the agent cannot be evaluated while it is trained."""
        if env is None and isinstance(self.env, gymnasium.Env):
            raise UserError(
                "The one environment object is used for training; evaluation needs another: eval_env=…."
            )
        if isinstance(env, gymnasium.Env) and len(self.seeds) > 1:
            raise UserError(
                "One environment object can evaluate one seed; give a callable that makes environments."
            )
        self._make_envs(1, segment=0, purpose="evaluate", seeds=self.seeds[:1], env=env).close()

    def watch(
        self,
        path: str | Path,
        *,
        seed: int | None = None,
        render_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Film:
        """Film complete episodes of one seed with frozen statistics, as a file that ends in .mp4 or .gif.

        `settings` are fields of `FilmConfig`: `agent.watch("hopper.mp4", seed=3, episodes=2)`.
        `render_kwargs` are arguments of the environment for the film alone, such as the width of a frame.
        """
        config = _override(FilmConfig(), settings)
        member = self._member(seed)
        return make_film(
            Path(path),
            self._actors[member],
            self.seeds[member],
            self._known_env(),
            self.env_kwargs | (render_kwargs or {}),
            self.spec,
            config,
        )

    def member(self: AnyAgent, seed: int) -> AnyAgent:
        """The agent of one seed alone: to save it, or for what knows nothing of populations."""
        place = self._member(seed)
        alone = copy.copy(self)
        alone.run, alone._next_envs = dataclasses.replace(self.run, seed=seed, seeds=1), None
        alone.final_return = {one: value for one, value in self.final_return.items() if one == seed}
        state = stack([select(self.population.state, place)])
        alone._set_population(Population((seed,), state, self.population.iteration))
        return alone

    def close(self) -> None:
        """Close the environments that wait for `learn`, which makes new ones where it needs them."""
        if self._next_envs is not None:
            self._next_envs.close()
            self._next_envs = None

    def with_config(self: AnyAgent, config: Any) -> AnyAgent:
        """An agent of the same seeds and environment with other settings, that has learned nothing."""
        other = copy.copy(self)
        other.config, other._next_envs, other._segment = config, None, 0
        other._begin(tuple(self.run.seed_values))
        return other

    def save(self, path: str | Path) -> Path:
        """Write networks and normalisation statistics of every seed to one file, without any pickle."""
        if not Path(path).name:
            raise UserError(f"The model cannot be saved as {path}: a name is needed.")
        path = _with_suffix(Path(path))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(path, self.population.state.model, self.description())
        except OSError as error:
            raise UserError(f"The model cannot be saved as {path}: {error.strerror or error}.") from None
        return path

    @classmethod
    def load(cls: type[AnyAgent], path: str | Path, *, env: Any = None, **env_options: Any) -> AnyAgent:
        """Read a model from a file or from a run's folder.

        `env` is needed only where the model was trained on a callable or an environment object and is to be
        evaluated or trained further; its spaces must be those of the model. A loaded agent that learns on
        does so with a fresh optimiser.
        """
        path = _find_model(Path(path))
        description = read_description(path)
        if description["algorithm"] != cls.algorithm:
            raise UserError(
                f"{path} holds a model of {description['algorithm']!r}, not of {cls.algorithm!r}; "
                f"load it with the class of that algorithm or with ppo_dice.load."
            )
        agent = cls.__new__(cls)
        agent._restore(path, description, env, env_options)
        return agent

    def description(self) -> dict[str, Any]:
        """What a reader of the model file must know, as JSON."""
        return {
            "algorithm": self.algorithm,
            "env": self.spec.id,
            "made_by_id": isinstance(self.env, str),
            "env_kwargs": self.env_kwargs,
            "observation_space": space_to_json(self.spec.observation_space),
            "action_space": space_to_json(self.spec.action_space),
            "backend": self.spec.backend,
            "engine": self.spec.engine,
            "max_episode_steps": self.spec.max_episode_steps,
            "pipeline": self.spec.pipeline,
            "seeds": list(self.seeds),
            "iteration": self.population.iteration,
            "segment": self._segment,
            "config": dataclasses.asdict(self.config),
        }

    def _begin(self, seeds: tuple[int, ...]) -> None:
        """Fresh networks for every seed."""
        self._algorithm = get_algorithm(self.algorithm)
        self._predictions = 0
        self.final_return: dict[int, float] = {}
        self.stop_reason: str | None = None
        self._set_population(init_population(self._algorithm, self.spec, seeds, self.config))

    def _restore(
        self, path: Path, description: dict[str, Any], env: Any, env_options: dict[str, Any]
    ) -> None:
        unknown = set(env_options) - {"backend", "workers", "env_kwargs"}
        if unknown:
            raise UserError(
                f"load takes backend, workers and env_kwargs, but not {', '.join(sorted(unknown))}."
            )
        saved = {name: description[name] for name in ("backend", "env_kwargs")}
        options = env_options if _is_another(env, description) else saved | env_options
        self.env_kwargs = options.pop("env_kwargs", {})
        seeds = tuple(description["seeds"])
        self.run = RunConfig(seed=seeds[0], seeds=len(seeds), **options)
        self.env = env if env is not None else description["env"] if description["made_by_id"] else None
        self.config = _config_from_json(config_class(self.algorithm), description["config"], path)
        self.spec = EnvSpec(
            id=description["env"],
            observation_space=space_from_json(description["observation_space"]),
            action_space=space_from_json(description["action_space"]),
            max_episode_steps=description["max_episode_steps"],
            backend=description["backend"],
            engine=description["engine"],
            pipeline=description["pipeline"],
        )
        self._next_envs = None
        if env is not None:
            self.spec = self._spec_of_given_env(seeds[0])
        self._begin(seeds)
        model = load_arrays(path, self.population.state.model)
        state = eqx.tree_at(
            lambda state: jax.tree.leaves(state.model), self.population.state, jax.tree.leaves(model)
        )
        self._set_population(Population(seeds, state, description["iteration"]))
        self._segment = description["segment"]  # the earlier ones belong to the run that made the model

    def _spec_of_given_env(self, seed: int) -> EnvSpec:
        """What the environment given to `load` is, after its spaces were compared with the model's."""
        envs = self._make_envs(1, segment=0, seeds=[seed])
        envs.close()
        return envs.spec

    def _make_envs(
        self,
        copies: int,
        *,
        segment: int,
        purpose: Purpose = "train",
        seeds: Sequence[int] | None = None,
        env: Any = None,
    ) -> Environments:
        """Copies of the agent's environment, or of another one with the same spaces."""
        env, env_kwargs = (self._known_env(), self.env_kwargs) if env is None else (env, {})
        env_seeds = [
            env_seed
            for seed in (self.run.seed_values if seeds is None else seeds)
            for env_seed in environment_seeds(seed, copies, segment=segment, purpose=purpose)
        ]
        envs = make_envs(
            env,
            env_seeds,
            backend=self.run.backend,
            env_kwargs=env_kwargs,
            workers=self.run.workers,
        )
        try:
            refuse_other_spaces(envs.spec, getattr(self, "spec", envs.spec))
        except UserError:
            envs.close()
            raise
        return envs

    def _known_env(self) -> Any:
        if self.env is None:
            raise UserError(
                f"This model was trained on {self.spec.id}, which has no id to make it from; "
                "pass it to load as env=…."
            )
        return self.env

    def _train(
        self,
        envs: Environments,
        run: RunConfig,
        folder: RunFolder | None,
        callbacks: Callbacks,
        progress_bar: bool,
    ) -> None:
        total = run.total_timesteps
        last_iteration = self.population.iteration + n_iterations_for(total, self.config)
        last_step = last_iteration * self.config.batch_size
        training = Training(self, last_step, folder)
        display = progress_display(last_step, enabled=progress_bar)
        iterations = train(self._algorithm, envs, self.population, self.config, total)
        try:
            RecordedRun(training, run, envs, callbacks, folder, display).go(iterations, self._note)
        finally:
            self.stop_reason = training.stop_reason

    def _note(self, iteration: Iteration) -> None:
        self._set_population(iteration.population)
        for seed, metrics in zip(self.seeds, iteration.metrics):
            if "rollout/last_10_return" in metrics:
                self.final_return[seed] = metrics["rollout/last_10_return"]

    def _set_population(self, population: Population) -> None:
        self.population = population
        self.__dict__.pop("_actors", None)

    @cached_property
    def _actors(self) -> list[Any]:
        return [jax.device_put(actor) for actor in unstack(self.population.state.model.actor)]

    def _member(self, seed: int | None) -> int:
        if seed is None:
            return 0
        if seed not in self.seeds:
            raise UserError(f"There is no seed {seed} here; the seeds are {', '.join(map(str, self.seeds))}.")
        return self.seeds.index(seed)


class PPO(Agent):
    """Proximal policy optimisation."""

    algorithm = "ppo"


class PPODice(Agent):
    """PPO with a divergence of visitation distributions as a regulariser."""

    algorithm = "ppo-dice"


AGENTS: dict[str, type[Agent]] = {cls.algorithm: cls for cls in (PPO, PPODice)}


def agent_class(algorithm: str) -> type[Agent]:
    """The class of an algorithm's agents."""
    config_class(algorithm)  # refuses a name that is not known at all
    if algorithm not in AGENTS:
        raise UserError(f"{algorithm!r} has no agent class here; give the class itself.")
    return AGENTS[algorithm]


def load(path: str | Path, **options: Any) -> Agent:
    """Read a model of whichever algorithm from a file or a run's folder."""
    algorithm = read_description(_find_model(Path(path)))["algorithm"]
    if algorithm not in AGENTS:
        raise UserError(f"{path} holds a model of {algorithm!r}, which this version does not know.")
    return AGENTS[algorithm].load(path, **options)


@partial(jax.jit, static_argnames="deterministic")
def _predict(actor: Actor, obs: Any, seed: Any, count: Any, *, deterministic: bool) -> Any:
    distributions = jax.vmap(actor)(obs)
    if deterministic:
        return jax.vmap(lambda distribution: distribution.mode())(distributions)
    noise = actor.policy.noise(jax.random.fold_in(jax.random.key(seed), count), obs.shape[:1])
    return jax.vmap(lambda distribution, n: distribution.sample(n))(distributions, noise)


def _is_single(space: gymnasium.Space[Any], observation: Any) -> bool:
    """Whether this is one observation and not a batch, told by the number of axes of its first part."""
    if isinstance(space, gymnasium.spaces.Dict):
        key, part = next(iter(space.spaces.items()))
        return _is_single(part, observation[key])
    if isinstance(space, gymnasium.spaces.Tuple):
        return _is_single(space.spaces[0], observation[0])
    shape = np.shape(observation)
    if shape[max(len(shape) - len(space.shape or ()), 0) :] != space.shape:
        raise UserError(f"An observation of shape {shape} is neither one from {space} nor a batch of them.")
    return len(shape) == len(space.shape or ())


def _override(config: Any, settings: dict[str, Any]) -> Any:
    """The config with other values; a dict changes fields of the config that it stands for."""
    known = {field.name for field in dataclasses.fields(config)}
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise UserError(f"{type(config).__name__} has no setting {name}{hint}")
    values = {name: _converted(getattr(config, name), value) for name, value in settings.items()}
    return dataclasses.replace(config, **values)


def _converted(present: Any, value: Any) -> Any:
    if isinstance(value, dict) and dataclasses.is_dataclass(present):
        return _override(present, value)
    return tuple(value) if isinstance(value, list) else value  # people and JSON write lists


def _config_from_json(cls: type[Any], values: dict[str, Any], path: Path) -> Any:
    try:
        return _override(cls(), values)
    except UserError as error:
        raise UserError(
            f"{path} has settings that this version of ppo-dice does not understand: {error}"
        ) from None


def _is_another(env: Any, description: dict[str, Any]) -> bool:
    """Whether an environment given to `load` is another than the one the model file tells how to make."""
    if env is None:
        return False
    if description["made_by_id"]:
        return bool(env != description["env"])
    return not callable(env)  # a callable has no name to know it by: it stands for the one trained on


def _with_suffix(path: Path) -> Path:
    return path if path.suffix == MODEL_SUFFIX else Path(f"{path}{MODEL_SUFFIX}")


def _find_model(path: Path) -> Path:
    """The model file that a path means: itself, the one of a run's folder, or the one that `save` wrote."""
    for candidate in (path, path / MODEL_FILE, _with_suffix(path)):
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise UserError(f"{path} is not a run's folder: it holds no {MODEL_FILE}.")
    raise UserError(f"There is no run's folder and no model file {path}.")
