"""Metrics → files: raw JSON lines, written as soon as they are there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ppo_dice.evaluation import Evaluation
from ppo_dice.training import Iteration

METRICS_FILE, EPISODES_FILE, EVALUATIONS_FILE = "metrics.jsonl", "episodes.jsonl", "evaluations.jsonl"


class Recorder:
    """Writes every iteration as soon as it is there, so that an interrupted run loses nothing."""

    def __init__(self, folder: Path, n_envs: int) -> None:
        self._folder, self._n_envs = folder, n_envs
        self._files: dict[str, TextIO] = {}
        for name in (METRICS_FILE, EPISODES_FILE):
            self._file(name)

    def write(self, iteration: Iteration) -> None:
        """One line per seed, and a line per finished episode."""
        population = iteration.population
        for seed, metrics in zip(population.seeds, iteration.metrics):
            place = {"iteration": population.iteration, "seed": seed, "env_steps": iteration.env_steps}
            self._line(METRICS_FILE, place | metrics)
        first_step = iteration.env_steps - iteration.steps
        for episode in iteration.episodes:
            self._line(
                EPISODES_FILE,
                {
                    "seed": population.seeds[episode.member],
                    "env": episode.env,
                    "env_steps": first_step + (episode.step + 1) * self._n_envs,
                    "return": episode.ret,
                    "length": episode.length,
                },
            )
        self._flush()

    def write_evaluation(self, evaluation: Evaluation, env_steps: int) -> None:
        """One line per seed, with every episode."""
        for seed, returns in evaluation.returns.items():
            self._line(
                EVALUATIONS_FILE,
                {
                    "seed": seed,
                    "env_steps": env_steps,
                    "deterministic": evaluation.deterministic,
                    "returns": returns,
                    "lengths": evaluation.lengths[seed],
                },
            )
        self._flush()

    def close(self) -> None:
        """Close everything."""
        for file in self._files.values():
            file.close()

    def _line(self, name: str, content: Mapping[str, Any]) -> None:
        self._file(name).write(json.dumps(content, allow_nan=False) + "\n")

    def _file(self, name: str) -> TextIO:
        if name not in self._files:
            self._files[name] = (self._folder / name).open("a", encoding="utf-8")
        return self._files[name]

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()
