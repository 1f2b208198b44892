"""Evaluation while training goes on, and the best model of every seed."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ppo_dice.callbacks.contract import Callback, Training, chosen_folder
from ppo_dice.checkpoint import save_arrays
from ppo_dice.config import check_types, require
from ppo_dice.errors import UserError
from ppo_dice.run_folder import BEST_MODEL_FILE


@dataclass
class EvalCallback(Callback):
    """Evaluates every seed now and then, and keeps the best model of each.

    An evaluation is made after the iteration that reaches a multiple of `eval_freq`, and after the last one.
    It runs in environments of its own with frozen statistics, and leaves training as it is, bit for bit.
    """

    eval_env: Any = None
    """Where to evaluate: an id, a callable or an environment; without one, copies of what is trained on."""
    eval_freq: int = 10_000
    """Steps per seed between evaluations."""
    n_eval_episodes: int = 10
    """Episodes per seed of an evaluation."""
    deterministic: bool = True
    """Take the most probable actions, or sample them."""
    best_model_save_path: str | Path | None = None
    """Folder of `best_model.safetensors`; without one, the run's folder if it has one."""
    env_seed: int = 1
    """Picks the starts of the episodes, the same each time; `evaluate` takes others (0) unless told so."""

    def __post_init__(self) -> None:
        check_types(self)
        require(self.eval_freq >= 1, "eval_freq", "at least 1", self.eval_freq)
        require(self.n_eval_episodes >= 1, "n_eval_episodes", "at least 1", self.n_eval_episodes)
        require(self.env_seed >= 0, "env_seed", "at least 0", self.env_seed)
        self.best = BestModel()

    def on_training_start(self, training: Training) -> None:
        """Begin without a best model."""
        if training.evaluates:
            raise UserError("There can be one EvalCallback in a run.")
        training.agent.check_evaluation(self.eval_env)
        training.evaluates = True
        self.best = BestModel()
        folder = chosen_folder(self.best_model_save_path, training.folder, "the best model")
        self._path = None if folder is None else folder / BEST_MODEL_FILE

    def on_iteration(self, training: Training) -> None:
        """Evaluate where it is time to."""
        if not training.reaches_multiple_of(self.eval_freq) and not training.complete:
            return
        began = time.perf_counter()
        evaluation = training.agent.evaluate(
            self.n_eval_episodes,
            deterministic=self.deterministic,
            env_seed=self.env_seed,
            env=self.eval_env,
        )
        training.add_evaluation(evaluation)
        training.record("time/eval_seconds", time.perf_counter() - began)
        model = training.agent.population.state.model
        improved = self.best.update(training.seeds, evaluation.mean_by_seed, training.env_steps, model)
        if improved and self._path is not None:
            save_arrays(
                self._path, self.best.model, training.agent.description() | {"best": self.best.origin}
            )


class BestModel:
    """The model of every seed at its own best evaluation: of each single run its own best model.

    A later evaluation that is no better than the best changes nothing.
    """

    def __init__(self) -> None:
        self.mean_by_seed: dict[int, float] = {}
        self.env_steps_by_seed: dict[int, int] = {}
        self.model: Any = None
        """Leaves have a leading [S]."""

    def update(
        self, seeds: tuple[int, ...], mean_by_seed: dict[int, float], env_steps: int, model: Any
    ) -> bool:
        """Take in the models of the seeds that are better than ever; say whether there were any."""
        better = [mean_by_seed[seed] > self.mean_by_seed.get(seed, -np.inf) for seed in seeds]
        old = model if self.model is None else self.model
        self.model = jax.tree.map(
            lambda new, kept: np.stack([(new if won else kept)[k] for k, won in enumerate(better)]),
            jax.tree.map(np.asarray, model),
            old,
        )
        for seed, won in zip(seeds, better):
            if won:
                self.mean_by_seed[seed], self.env_steps_by_seed[seed] = mean_by_seed[seed], env_steps
        return any(better)

    @property
    def origin(self) -> dict[str, dict[str, Any]]:
        """When each seed was at its best and how good, for the header of the model file."""
        return {
            str(seed): {"env_steps": self.env_steps_by_seed[seed], "mean_reward": mean}
            for seed, mean in self.mean_by_seed.items()
        }
