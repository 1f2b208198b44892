"""Metrics → files: raw JSON lines always, and TensorBoard events."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from ppo_dice.training import Iteration

METRICS_FILE, EPISODES_FILE, TENSORBOARD_FOLDER = "metrics.jsonl", "episodes.jsonl", "tensorboard"


class Recorder:
    """Writes every iteration as soon as it is there, so that an interrupted run loses nothing."""

    def __init__(self, folder: Path, n_envs: int) -> None:
        from tensorboardX import SummaryWriter

        self._folder, self._n_envs = folder, n_envs
        self._metrics: TextIO = (folder / METRICS_FILE).open("a", encoding="utf-8")
        self._episodes: TextIO = (folder / EPISODES_FILE).open("a", encoding="utf-8")
        self._open_writer: Callable[[int], Any] = lambda seed: SummaryWriter(
            str(folder / TENSORBOARD_FOLDER / f"seed_{seed}")
        )
        self._writers: dict[int, Any] = {}

    def write(self, iteration: Iteration) -> None:
        """One line per seed, and a line per finished episode."""
        population = iteration.population
        for seed, metrics in zip(population.seeds, iteration.metrics):
            place = {"iteration": population.iteration, "seed": seed, "env_steps": iteration.env_steps}
            self._metrics.write(json.dumps(place | metrics, allow_nan=False) + "\n")
            self._write_events(seed, iteration.env_steps, metrics)
        first_step = iteration.env_steps - iteration.steps
        for episode in iteration.episodes:
            line = {
                "seed": population.seeds[episode.member],
                "env": episode.env,
                "env_steps": first_step + (episode.step + 1) * self._n_envs,
                "return": episode.ret,
                "length": episode.length,
            }
            self._episodes.write(json.dumps(line, allow_nan=False) + "\n")
        self._metrics.flush()
        self._episodes.flush()

    def close(self) -> None:
        """Flush and close everything."""
        self._metrics.close()
        self._episodes.close()
        for writer in self._writers.values():
            writer.close()

    def _write_events(self, seed: int, env_steps: int, metrics: dict[str, float]) -> None:
        writer = self._writers.get(seed)
        if writer is None:
            writer = self._writers[seed] = self._open_writer(seed)
        for tag, value in metrics.items():
            writer.add_scalar(tag, value, env_steps)
