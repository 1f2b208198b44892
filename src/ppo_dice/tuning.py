"""A search for settings with Optuna, in a folder that it can be stopped in and taken up again.

A trial trains a population, all its seeds at once, and counts the mean over seeds of the final return. The
best of many trials is partly the luckiest, so its settings are trained again at the end, on fresh seeds.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppo_dice.agent import Agent, agent_class
from ppo_dice.checkpoint import write_atomically
from ppo_dice.config import FORMAT_VERSION, RunConfig, require
from ppo_dice.errors import UserError
from ppo_dice.evaluation import standard_error
from ppo_dice.interrupts import interrupts_wait
from ppo_dice.presets import preset as make_preset
from ppo_dice.run_folder import RESULT_FILE, RunFolder
from ppo_dice.search_space import Choice, Range, default_search, read_search
from ppo_dice.settings import flat_settings, read_value, value_text, with_settings
from ppo_dice.training import NonFiniteError

STUDY_FILE, TUNE_FILE = "study.journal", "tune.json"
REASON = "reason"


@dataclass(frozen=True)
class Tuned:
    """What a search found."""

    values: dict[str, Any]
    """Settings of the best trial."""
    searched: float
    """Its mean over the seeds of the search, which is optimistic."""
    winner: Agent
    """The same settings, trained on fresh seeds."""
    folder: Path
    """The run's folder of the winner."""

    @property
    def mean(self) -> float:
        """Mean over the fresh seeds of the return of the last 10 training episodes."""
        return float(np.mean(list(self.winner.final_return.values())))

    @property
    def standard_error(self) -> float | None:
        """Standard error of that mean; None for a single seed."""
        return standard_error(list(self.winner.final_return.values()))


def tune(
    env: Any,
    *,
    total_timesteps: int,
    out: str | Path,
    trials: int = 20,
    search: Mapping[str, Any] | None = None,
    final_seeds: int = 5,
    algo: str | type[Agent] = "ppo-dice",
    seed: int = 0,
    seeds: int = 1,
    preset: str = "default",
    config: Any = None,
    backend: str = "auto",
    workers: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Tuned:
    """Search for settings, until `out` holds `trials` trials; called again, it goes on where it was stopped.

    `search` maps settings to ranges or values: `{"learning_rate": "1e-4:1e-2:log", "n_epochs": [3, 10]}`.
    Other settings stay as they are. What it finds is the same however often it was stopped.
    """
    optuna = _import_optuna()
    kind = agent_class(algo) if isinstance(algo, str) else algo
    base = make_preset(kind.algorithm, env, preset) if config is None else config
    base = with_settings(base, flat_settings(base, settings))
    space = read_search(base, default_search(base) if search is None else search)
    require(trials >= 1, "trials", "at least 1", trials)
    require(bool(space), "search", "a range for at least one setting", search)
    run = RunConfig(seed=seed, seeds=seeds, total_timesteps=total_timesteps, backend=backend, workers=workers)
    options = {"config": base, "backend": backend, "workers": workers, "env_kwargs": env_kwargs}
    fresh = kind(env, seed=seed + seeds, seeds=final_seeds, **options)
    agent = kind(env, seed=seed, seeds=seeds, **options)
    for one in (agent, fresh):
        one.close()
    tuning = _Tuning(optuna, Path(out), agent, space, run)
    tuning.search(trials, progress)
    return tuning.crown(fresh, progress)


class _Tuning:
    """A search and its folder."""

    def __init__(
        self, optuna: Any, folder: Path, agent: Agent, space: dict[str, Range | Choice], run: RunConfig
    ) -> None:
        self._optuna = optuna
        self._folder, self._agent, self._space, self._run = folder, agent, space, run
        self._begin()
        store = self._optuna.storages.JournalStorage(
            self._optuna.storages.journal.JournalFileBackend(str(folder / STUDY_FILE))
        )
        self._study = self._optuna.create_study(
            storage=store, study_name="tune", direction="maximize", load_if_exists=True
        )
        self._repeat_what_was_cut_short()

    def search(self, trials: int, progress: Callable[[str], None]) -> None:
        """Run trials until there are enough."""
        distributions = {name: self._distribution(name, part) for name, part in self._space.items()}
        while len(self._finished()) < trials:
            number = len(self._finished())
            # A sampler of its own for every trial: a search that was stopped draws what it would have drawn.
            seed = int(np.random.SeedSequence((self._run.seed, number)).generate_state(1)[0])
            self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
            with interrupts_wait():
                trial = self._study.ask(distributions)
            values = {name: self._value(name, value) for name, value in trial.params.items()}
            mean, remark = self._try(trial, values)
            with interrupts_wait():
                state = self._optuna.trial.TrialState
                self._study.tell(trial, mean, state.COMPLETE if mean is not None else state.PRUNED)
                self._write()
            shown = "  ".join(f"{name}={_short(value)}" for name, value in values.items())
            progress(f"trial {number + 1} of {trials}: {remark}   {shown}")

    def crown(self, agent: Agent, progress: Callable[[str], None]) -> Tuned:
        """Train the best settings on the agent's seeds, unless that has been done."""
        best = self._best()
        values = {name: self._value(name, value) for name, value in best.params.items()}
        folder, done = self._winner_folder(best.number, agent)
        if done:
            winner = type(agent).load(folder, env=None if isinstance(agent.env, str) else agent.env)
            result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
            winner.final_return = {int(seed): value for seed, value in result["final_return"].items()}
        else:
            progress(f"the best settings again, on fresh seeds {agent.seeds[0]}–{agent.seeds[-1]} → {folder}")
            winner = agent.with_config(with_settings(self._agent.config, values))
            winner.learn(self._run.total_timesteps, out=folder)
        tuned = Tuned(values, best.value, winner, folder)
        with interrupts_wait():
            self._write(tuned)
        return tuned

    def _try(self, trial: Any, values: dict[str, Any]) -> tuple[float | None, str]:
        """The mean over seeds, or None where there is none; and what to tell."""
        try:
            agent = self._agent.with_config(with_settings(self._agent.config, values))
            agent.learn(self._run.total_timesteps)
        except (NonFiniteError, UserError) as error:  # settings that do not fit together are a bad trial too
            trial.set_user_attr(REASON, str(error))
            return None, f"failed: {error}"
        returns = list(agent.final_return.values())
        if len(returns) < len(agent.seeds):
            trial.set_user_attr(REASON, "no episode of every seed has ended")
            return None, "no episode of every seed has ended"
        trial.set_user_attr("final_return", {str(k): value for k, value in agent.final_return.items()})
        return float(np.mean(returns)), _mean_text(float(np.mean(returns)), standard_error(returns))

    def _begin(self) -> None:
        """Make the folder, or see that it belongs to this search."""
        file = self._folder / TUNE_FILE
        if not file.exists():
            RunFolder(self._folder)  # refuses a folder that cannot be used
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write_json({"search": self._description(), "trials": []})
            return
        before = json.loads(file.read_text(encoding="utf-8"))["search"]
        for name, value in self._description().items():
            if before.get(name) != value:
                raise UserError(
                    f"{self._folder} holds a search with another {name}, {before.get(name)} and not {value}; "
                    "choose another folder with --out (out=…)."
                )

    def _description(self) -> dict[str, Any]:
        agent = self._agent.description()
        content = {name: agent[name] for name in ("algorithm", "env", "env_kwargs", "backend", "seeds")}
        content |= {"space": {name: str(part) for name, part in self._space.items()}}
        content |= {"total_timesteps": self._run.total_timesteps, "config": agent["config"]}
        known: dict[str, Any] = json.loads(json.dumps(content))
        return known

    def _repeat_what_was_cut_short(self) -> None:
        state = self._optuna.trial.TrialState
        with interrupts_wait():
            for trial in self._study.get_trials(states=(state.RUNNING,)):
                self._study.enqueue_trial(trial.params)
                self._study.tell(trial.number, state=state.FAIL)

    def _finished(self) -> list[Any]:
        state = self._optuna.trial.TrialState
        return list(self._study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED)))

    def _best(self) -> Any:
        known = [trial for trial in self._finished() if trial.value is not None]
        if not known:
            reasons = {trial.user_attrs.get(REASON) for trial in self._finished()}
            raise UserError(f"No trial has a return: {'; '.join(sorted(map(str, reasons)))}.")
        return max(known, key=lambda trial: trial.value)

    def _winner_folder(self, number: int, agent: Agent) -> tuple[Path, bool]:
        """Where the best trial's settings are trained again, and whether they have been, on these seeds."""
        attempt = 1
        while True:
            folder = self._folder / (f"winner-{number}" + (f"-{attempt}" if attempt > 1 else ""))
            if not folder.exists():
                return folder, False
            result = folder / RESULT_FILE
            content = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
            if content.get("complete") and set(content["final_return"]) == set(map(str, agent.seeds)):
                return folder, True
            attempt += 1

    def _distribution(self, name: str, part: Range | Choice) -> Any:
        kinds = self._optuna.distributions
        if isinstance(part, Choice):  # as texts: a store of Optuna holds no tuples
            return kinds.CategoricalDistribution([value_text(value) for value in part.values])
        whole = isinstance(part.low, int) and isinstance(part.high, int)
        return (kinds.IntDistribution if whole else kinds.FloatDistribution)(
            part.low, part.high, log=part.log
        )

    def _value(self, name: str, value: Any) -> Any:
        return read_value(self._agent.config, name, value) if isinstance(value, str) else value

    def _write(self, tuned: Tuned | None = None) -> None:
        content: dict[str, Any] = {
            "search": self._description(),
            "trials": [
                {
                    "number": trial.number,
                    "values": trial.params,
                    "mean": trial.value,
                    "final_return": trial.user_attrs.get("final_return", {}),
                    "reason": trial.user_attrs.get(REASON),
                }
                for trial in self._finished()
            ],
        }
        if tuned:
            content["winner"] = {
                "values": tuned.values,
                "mean_in_search": tuned.searched,
                "folder": tuned.folder.name,
                "final_return": {str(seed): value for seed, value in tuned.winner.final_return.items()},
                "mean": tuned.mean,
                "standard_error": tuned.standard_error,
            }
        self._write_json(content)

    def _write_json(self, content: dict[str, Any]) -> None:
        text = json.dumps({"format_version": FORMAT_VERSION, **content}, indent=2, allow_nan=False) + "\n"
        write_atomically(self._folder / TUNE_FILE, text.encode())


def _import_optuna() -> Any:
    try:
        with interrupts_wait():
            import optuna
            import optuna.storages.journal
    except ImportError:
        raise UserError("The search needs Optuna: pip install 'ppo-dice[optuna]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)


def _mean_text(mean: float, error: float | None) -> str:
    return f"{mean:.1f}" if error is None else f"{mean:.1f} ± {error:.1f}"
