"""The commands and their options.

Nothing heavy is imported before it is known that there is work to do.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from ppo_dice.algorithms import algorithm_names, config_class
from ppo_dice.atari_games import game_of
from ppo_dice.atari_settings import describe
from ppo_dice.config import FilmConfig, RunConfig
from ppo_dice.errors import UserError
from ppo_dice.interrupts import INTERRUPTED, interrupts_wait
from ppo_dice.monitor_options import MonitorOptions, monitoring_callbacks
from ppo_dice.presets import preset, preset_names
from ppo_dice.search_space import split_search
from ppo_dice.settings import read_sweep, settings_by_option, value_text

DEFAULT_ALGORITHM = "ppo-dice"

Config = TypeVar("Config")


@dataclass(frozen=True)
class TaskOptions(Generic[Config]):
    """What is trained, on what, with which settings."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV", help_behavior_hint="(required)")]
    """Id of the environment, e.g. Hopper-v5 or my_package.my_envs:MyEnv-v0; it comes first."""
    run: Annotated[RunConfig, tyro.conf.arg(name="")]
    config: Annotated[Config, tyro.conf.arg(name="")]
    algo: str = DEFAULT_ALGORITHM
    """Algorithm: ppo-dice or ppo."""
    preset: str = "default"
    """Settings to start from: default (ours), paper, published (the paper's code), or paper-tuned."""
    env_kwargs: str = "{}"
    """Keyword arguments of the environment, as a JSON object."""
    sticky_actions: float | None = None
    """Of Atari's games: probability that a frame repeats the action before; 0 in the paper."""


@dataclass(frozen=True)
class TrainOptions(TaskOptions[Config]):
    """Train a population of agents, one per seed, on one environment."""

    monitor: Annotated[MonitorOptions, tyro.conf.arg(name="")] = field(default_factory=MonitorOptions)
    out: Path | None = None
    """Folder of the run; runs/ENV/ALGO-TIME where it is not given."""
    sweep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE,…")] = ()
    """Values to compare, e.g. gae_lambda=0.9,0.95; given several times, all combinations are trained."""


@dataclass(frozen=True)
class TuneOptions(TaskOptions[Config]):
    """Search for settings with Optuna; started again with the same options, it goes on where it stopped.

    A trial trains all its seeds at once and counts the mean over them of the return of the last 10 training
    episodes. The best is trained again on fresh seeds at the end.
    """

    trials: int = 20
    """Trials that the folder is to hold in the end."""
    search: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=RANGE …")] = ()
    """Settings to search, e.g. learning_rate=1e-4:1e-2:log gae_lambda=0.9:0.99 hidden_sizes=64x64,256x256."""
    final_seeds: int = 5
    """Fresh seeds on which the winner is trained at the end."""
    out: Path | None = None
    """Folder of the search; runs/ENV/ALGO-tune where it is not given."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Run a trained population for whole episodes with frozen statistics."""

    run: tyro.conf.Positional[Path]
    """A run's folder, or a model file."""
    episodes: int = 10
    """Episodes per seed."""
    seed: int | None = None
    """Evaluate only the member with this seed."""
    stochastic: bool = False
    """Sample actions instead of taking the most probable ones."""
    env_seed: int = 0
    """Picks another set of starts of the environment."""
    backend: str | None = None
    """Where the environment runs; as in training where it is not given."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class WatchOptions:
    """Film whole episodes of one trained agent, with frozen statistics."""

    run: tyro.conf.Positional[Path]
    """A run's folder, or a model file."""
    film: Annotated[FilmConfig, tyro.conf.arg(name="")]
    out: Path = Path("film.mp4")
    """The film, a name that ends in .mp4 or .gif; an earlier film of this name is replaced."""
    seed: int | None = None
    """Film the member with this seed; the first where it is not given."""
    render_kwargs: str = "{}"
    """Arguments of the environment for the film alone, as a JSON object, e.g. '{"width": 960}'."""


@dataclass(frozen=True)
class EnvsOptions:
    """List the environments that are installed, with the backends that know them."""

    text: tyro.conf.Positional[str] = ""
    """Only those whose name contains this."""


@dataclass(frozen=True)
class PresetsOptions:
    """Show the settings of every preset for an environment."""

    env: tyro.conf.Positional[str] = "Hopper-v5"
    """Id of the environment; presets differ by family, and an unknown one gets the general settings."""


@dataclass(frozen=True)
class TheoryOptions:
    """Run the laboratory: bounds, updates and estimators on systems whose divergences are known exactly."""

    out: Path = Path("theory")
    """Folder for theory.json, a picture of each experiment, and index.html, which shows them all."""


@dataclass(frozen=True)
class InfoOptions:
    """Show versions, backends and devices, for a bug report."""


def run_command(name: str, arguments: list[str]) -> int:
    """Run a command and return its exit status."""
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "tune": _tune,
        "evaluate": _evaluate,
        "watch": _watch,
        "envs": _envs,
        "presets": _presets,
        "theory": _theory,
        "info": _info,
    }
    if name not in commands:
        raise UserError(f"There is no command {name!r}; known are: {', '.join(commands)}.")
    return commands[name](arguments)


def _train(arguments: list[str]) -> int:
    options = parse_train(arguments)
    out = options.out or Path(
        "runs", options.env.replace(":", "_"), f"{options.algo}-{'sweep-' if options.sweep else ''}{_now()}"
    )
    env_kwargs = _env_kwargs(options)
    swept = read_sweep(options.config, options.sweep)
    if swept and options.monitor != MonitorOptions():
        raise UserError(
            "A sweep is neither evaluated nor filmed nor tracked while it goes on; leave out --eval-…, "
            "--stop-at-return, --capture-… and --track, and evaluate its runs afterwards."
        )
    prepare_jax()
    from ppo_dice.agent import AGENTS
    from ppo_dice.run_folder import CURVE_FILE, RunFolder
    from ppo_dice.tracking import chosen_sinks
    from ppo_dice.training import NonFiniteError

    sinks = chosen_sinks(options.monitor.track)
    RunFolder(out)  # refuses a folder that cannot be used, before any work starts
    if options.algo not in AGENTS:
        raise UserError(f"The command line cannot train {options.algo!r}; it has no agent class.")
    if swept:
        return _train_sweep(options, swept, env_kwargs, out)
    run_config = options.run
    agent = AGENTS[options.algo](options.env, **_keywords(options, env_kwargs))
    print(f"{options.algo} on {agent.spec.id} ({agent.spec.engine}), seeds {_span(agent.seeds)} → {out}")
    if agent.spec.pipeline:
        print(f"pipeline: {describe(agent.spec.pipeline)}")
    callbacks = monitoring_callbacks(options.monitor, run_config.total_timesteps)
    status, began = 0, time.perf_counter()
    try:
        agent.learn(run_config.total_timesteps, callbacks, progress_bar=True, out=out, track=sinks)
    except KeyboardInterrupt:
        print("interrupted; everything up to the last whole iteration is saved", file=sys.stderr)
        status = INTERRUPTED
    except NonFiniteError as error:
        print(f"error: {error} The last good model is saved in {out}.", file=sys.stderr)
        status = 1
    else:
        if agent.stop_reason:
            print(f"stopped: {agent.stop_reason}")
    _print_result(agent, time.perf_counter() - began)
    _print_monitored(callbacks, out)
    print(f"model, metrics and picture: {out} ({CURVE_FILE})")
    return status


def _train_sweep(
    options: TrainOptions[Any], swept: dict[str, Any], env_kwargs: dict[str, Any], out: Path
) -> int:
    from ppo_dice.sweep_folder import SWEEP_PICTURE
    from ppo_dice.sweeps import Sweep

    run = options.run
    sweep = Sweep(options.env, algo=options.algo, **_keywords(options, env_kwargs), **swept)
    sizes = " + ".join(str(len(population)) for population in sweep.populations)
    print(f"{options.algo} on {options.env}, {sizes} values, seeds {_span(sweep.seeds)} → {out}", flush=True)
    status = 0
    try:
        sweep.learn(run.total_timesteps, progress_bar=True, out=out)
    except KeyboardInterrupt:
        print("interrupted; everything up to the last whole iteration is saved", file=sys.stderr)
        status = INTERRUPTED
    over = "1 seed" if run.seeds == 1 else f"mean ± standard error over {run.seeds} seeds"
    print(f"return of the last 10 training episodes, {over}:")
    print(sweep.table())
    print(f"a run's folder for each value, and a picture of all: {out} ({SWEEP_PICTURE})")
    return status


def _keywords(options: TaskOptions[Any], env_kwargs: dict[str, Any]) -> dict[str, Any]:
    """What makes an agent of these options, and whatever is made of agents."""
    run = options.run
    keywords = {"config": options.config, "env_kwargs": env_kwargs}
    return keywords | {name: getattr(run, name) for name in ("seed", "seeds", "backend", "workers")}


def parse_train(arguments: list[str]) -> TrainOptions[Any]:
    """Parse the options of `train` on top of the preset for this algorithm and environment."""
    options: TrainOptions[Any] = _parse_on_preset(TrainOptions, "train", arguments)
    return options


def _parse_on_preset(kind: Any, command: str, arguments: list[str]) -> Any:
    asks_help = any(argument in ("-h", "--help") for argument in arguments)
    env = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if env is None and not asks_help:
        raise UserError(f"The environment comes first: ppo-dice {command} ENV [options], e.g. Hopper-v5.")
    algo = _peek(arguments, "--algo", DEFAULT_ALGORITHM)
    name = _peek(arguments, "--preset", "default")
    default = kind(env=env or "", run=RunConfig(), config=preset(algo, env or "", name))
    return tyro.cli(kind[config_class(algo)], args=arguments, default=default, prog=f"ppo-dice {command}")


def _tune(arguments: list[str]) -> int:
    options: TuneOptions[Any] = _parse_on_preset(TuneOptions, "tune", arguments)
    out = options.out or Path("runs", options.env.replace(":", "_"), f"{options.algo}-tune")
    env_kwargs, search = _env_kwargs(options), split_search(options.search) or None
    prepare_jax()
    from ppo_dice.tuning import tune

    try:
        tuned = tune(
            options.env,
            total_timesteps=options.run.total_timesteps,
            out=out,
            trials=options.trials,
            search=search,
            final_seeds=options.final_seeds,
            algo=options.algo,
            progress=partial(print, flush=True),
            **_keywords(options, env_kwargs),
        )
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from the trials in {out}", file=sys.stderr)
        return INTERRUPTED
    for name, value in tuned.values.items():
        print(f"  {name} = {value_text(value)}")
    print(f"mean in the search, which is optimistic: {tuned.searched:.1f}")
    print(f"mean over fresh seeds: {_mean_text(tuned.mean, tuned.standard_error)}")
    print(f"model, metrics and picture: {tuned.folder}")
    return 0


def _evaluate(arguments: list[str]) -> int:
    options = tyro.cli(EvaluateOptions, args=arguments, prog="ppo-dice evaluate")
    prepare_jax()
    from ppo_dice.agent import load

    agent = load(options.run, **({} if options.backend is None else {"backend": options.backend}))
    result = agent.evaluate(
        options.episodes, deterministic=not options.stochastic, seed=options.seed, env_seed=options.env_seed
    )
    if options.json:
        summary = {
            "env": agent.spec.id,
            "algorithm": agent.algorithm,
            "deterministic": result.deterministic,
            "episodes": options.episodes,
            "returns": {str(seed): values for seed, values in result.returns.items()},
            "lengths": {str(seed): values for seed, values in result.lengths.items()},
            "mean_by_seed": {str(seed): value for seed, value in result.mean_by_seed.items()},
            "mean": result.mean,
            "standard_error": result.standard_error,
        }
        print(json.dumps(summary))
        return 0
    kind = "most probable" if result.deterministic else "sampled"
    print(f"{agent.algorithm} on {agent.spec.id}, {options.episodes} episodes per seed, {kind} actions")
    for seed, mean in result.mean_by_seed.items():
        print(f"  seed {seed}: {mean:.1f}")
    print(f"mean over seeds: {_mean_text(result.mean, result.standard_error)}")
    return 0


def _watch(arguments: list[str]) -> int:
    options = tyro.cli(WatchOptions, args=arguments, prog="ppo-dice watch")
    render_kwargs = _json_object("--render-kwargs", options.render_kwargs)
    prepare_jax()
    from ppo_dice.agent import load

    agent = load(options.run)
    settings = dataclasses.asdict(options.film)
    film = agent.watch(options.out, seed=options.seed, render_kwargs=render_kwargs, **settings)
    ((seed, returns),) = film.evaluation.returns.items()
    kind = "most probable" if film.evaluation.deterministic else "sampled"
    print(f"{agent.algorithm} on {agent.spec.id}, seed {seed}, {kind} actions")
    if film.note:
        print(f"note: {film.note}")
    for number, (value, length, cut) in enumerate(
        zip(returns, film.evaluation.lengths[seed], film.cut), start=1
    ):
        print(f"  episode {number}: return {value:.1f} in {length} steps" + (", then cut" if cut else ""))
    print(f"{film.path}: {film.frames} frames, {film.seconds:.1f} s")
    return 0


def _envs(arguments: list[str]) -> int:
    options = tyro.cli(EnvsOptions, args=arguments, prog="ppo-dice envs")
    with interrupts_wait():
        from ppo_dice.envs import list_environments

    found = [(name, where) for name, where in list_environments() if options.text.lower() in name.lower()]
    if not found:
        raise UserError(f"No environment has {options.text!r} in its name; `ppo-dice envs` lists them all.")
    for name, where in found:
        print(f"{name:40} {', '.join(where)}")
    return 0


def _presets(arguments: list[str]) -> int:
    env = tyro.cli(PresetsOptions, args=arguments, prog="ppo-dice presets").env
    for algo in algorithm_names():
        names = preset_names(algo)
        columns = {name: settings_by_option(preset(algo, env, name)) for name in names}
        print(f"{algo} on {env}\n{'':32}" + "".join(f"{name:>14}" for name in names))
        for setting in columns["default"]:
            values = "".join(f"{columns[name][setting]!s:>14}" for name in names)
            print(f"  {setting:30}{values}")
    return 0


def _theory(arguments: list[str]) -> int:
    out = tyro.cli(TheoryOptions, args=arguments, prog="ppo-dice theory").out
    prepare_jax()
    with interrupts_wait():
        from ppo_dice.reports.theory import build_report, summary
        from ppo_dice.theory import run as run_laboratory

    began = time.perf_counter()
    run_laboratory(out, progress=lambda line: print(line, flush=True))
    page = build_report(out)
    print(f"done in {time.perf_counter() - began:.0f} s")
    print(summary(out))
    print(f"pictures, tables and what to see in them: {page}")
    return 0


def _info(arguments: list[str]) -> int:
    tyro.cli(InfoOptions, args=arguments, prog="ppo-dice info")
    prepare_jax()
    from ppo_dice.run_folder import device, versions

    for name, value in (versions() | device()).items():
        print(f"{name:16}{value}")
    return 0


@interrupts_wait()  # an extension whose start is cut short can crash the process
def prepare_jax() -> None:
    """Import what is heavy, with the settings that JAX needs beforehand; those the user made stay."""
    import jax

    sys.path.insert(0, os.getcwd())  # `my_package.my_envs:Id` is found where the command is run
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "ppo-dice", "jax")
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        # Acting is one tiny call per step: handing it to another thread would double its time.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    import ppo_dice.agent  # noqa: F401


def _print_result(agent: Any, seconds: float) -> None:
    from ppo_dice.evaluation import standard_error

    steps = agent.population.iteration * agent.config.batch_size
    returns = agent.final_return
    print(f"{steps:,} steps per seed in {seconds:.1f} s; return of the last 10 training episodes:")
    for seed in agent.seeds:
        print(f"  seed {seed}: " + (f"{returns[seed]:.1f}" if seed in returns else "no episode has ended"))
    if returns:
        values = list(returns.values())
        print(f"mean over seeds: {_mean_text(sum(values) / len(values), standard_error(values))}")


def _print_monitored(callbacks: list[Any], out: Path) -> None:
    """What the callbacks have kept."""
    from ppo_dice.callbacks import EvalCallback, FilmCallback
    from ppo_dice.evaluation import standard_error
    from ppo_dice.run_folder import BEST_MODEL_FILE

    for callback in callbacks:
        if isinstance(callback, EvalCallback) and callback.best.model is not None:
            values = list(callback.best.mean_by_seed.values())
            mean = _mean_text(sum(values) / len(values), standard_error(values))
            models = out / BEST_MODEL_FILE
            print(f"best evaluation of every seed, mean over seeds: {mean}; its models: {models}")
        if isinstance(callback, FilmCallback) and callback.films:
            last = callback.films[-1]
            print(f"films: {last.path.parent}" + (f", {last.note}" if last.note else ""))


def _mean_text(mean: float, error: float | None) -> str:
    return f"{mean:.1f}" if error is None else f"{mean:.1f} ± {error:.1f} (standard error)"


def _peek(arguments: list[str], option: str, default: str) -> str:
    """The value of an option that decides what the other options are."""
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(option + "="):
            return argument.partition("=")[2]
    return default


def _env_kwargs(options: TaskOptions[Any]) -> dict[str, Any]:
    env_kwargs = _json_object("--env-kwargs", options.env_kwargs)
    if options.sticky_actions is None:
        return env_kwargs
    if game_of(options.env) is None:
        raise UserError(f"--sticky-actions is for Atari's games, and {options.env} is none.")
    return {**env_kwargs, "sticky_actions": options.sticky_actions}


def _json_object(option: str, text: str) -> dict[str, Any]:
    wanted = f"{option} must be a JSON object such as '{{\"size\": 5}}'"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{wanted}, but: {error}.") from None
    if not isinstance(value, dict):
        raise UserError(f"{wanted}, but is {text}.")
    return value


def _span(seeds: tuple[int, ...]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]}–{seeds[-1]}"


def _now() -> str:
    return time.strftime("%Y%m%d-%H%M%S")
