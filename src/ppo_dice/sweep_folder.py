"""What a sweep leaves on disk: a run's folder for every value, and a table and a picture of all."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppo_dice.agent import Agent
from ppo_dice.checkpoint import write_atomically
from ppo_dice.config import FORMAT_VERSION, RunConfig
from ppo_dice.errors import UserError
from ppo_dice.evaluation import standard_error
from ppo_dice.recording import METRICS_FILE
from ppo_dice.reports.learning_curve import plot_learning_curves
from ppo_dice.run_folder import RunFolder
from ppo_dice.settings import value_text

SWEEP_FILE, SWEEP_PICTURE = "sweep.json", "sweep.png"


@dataclass
class Variant:
    """One combination of values, and the agent that learns with it."""

    values: dict[str, Any]
    agent: Agent
    complete: bool = False
    failure: str | None = None
    """Why it stopped learning, where a number was not finite."""

    @property
    def name(self) -> str:
        """Its values in a line, which is also the name of its folder."""
        return ",".join(f"{name}={value_text(value)}" for name, value in self.values.items())

    @property
    def env_steps(self) -> int:
        """Steps per seed so far."""
        return int(self.agent.population.iteration * self.agent.config.batch_size)

    @property
    def mean(self) -> float | None:
        """Mean over seeds of the last 10 training episodes' return; None until every seed has one."""
        returns = self.agent.final_return
        return float(np.mean(list(returns.values()))) if len(returns) == len(self.agent.seeds) else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of that mean; None for a single seed."""
        return None if self.mean is None else standard_error(list(self.agent.final_return.values()))

    @property
    def state(self) -> str:
        """What became of it, in a word or two."""
        if self.failure:
            return "failed"
        return "done" if self.complete else "stopped early" if self.env_steps else "not begun"


class SweepFolder:
    """Writes the table and the picture. Making the object only checks that the folder can be used."""

    def __init__(self, path: Path, variants: Sequence[Variant]) -> None:
        self.path, self._variants = path, variants
        RunFolder(path)
        for name in (SWEEP_FILE, SWEEP_PICTURE):
            if (path / name).exists():
                raise UserError(f"{path} already holds {name}; choose another folder with --out (out=…).")
        for variant in variants:
            RunFolder(self.path_of(variant))

    def path_of(self, variant: Variant) -> Path:
        """The run's folder of a variant."""
        return self.path / variant.name.replace(os.sep, "_")

    def write(self, run: RunConfig) -> None:
        """Write down what is known of every value so far."""
        self.path.mkdir(parents=True, exist_ok=True)
        agent = self._variants[0].agent
        content = {
            "format_version": FORMAT_VERSION,
            "algorithm": agent.algorithm,
            "env": agent.spec.id,
            "seeds": list(agent.seeds),
            "total_timesteps": run.total_timesteps,
            "complete": all(variant.complete for variant in self._variants),
            "variants": [self._row(variant) for variant in self._variants],
        }
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        write_atomically(self.path / SWEEP_FILE, text.encode())

    def draw(self) -> None:
        """A learning curve for every value that has begun."""
        files = {variant.name: self.path_of(variant) / METRICS_FILE for variant in self._variants}
        begun = {name: path for name, path in files.items() if path.exists()}
        agent = self._variants[0].agent
        plot_learning_curves(begun, self.path / SWEEP_PICTURE, f"{agent.algorithm} on {agent.spec.id}")

    def _row(self, variant: Variant) -> dict[str, Any]:
        returns = variant.agent.final_return
        return {
            "values": variant.values,
            "folder": self.path_of(variant).name,
            "state": variant.state,
            "failure": variant.failure,
            "env_steps": variant.env_steps,
            "final_return": {str(seed): value for seed, value in returns.items()},
            "mean": variant.mean,
            "standard_error": variant.standard_error,
        }
