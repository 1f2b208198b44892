"""Learning curves: of one run, or of several in one picture, from their metrics files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

METRIC = "rollout/last_10_return"
BLUE = "#0072b2"


def read_curve(metrics_file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Steps [I] and returns [I, S] of the iterations in which every seed had finished an episode."""
    by_step: dict[int, dict[int, float | None]] = {}
    for line in metrics_file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        by_step.setdefault(row["env_steps"], {})[row["seed"]] = row.get(METRIC)
    seeds = {seed for values in by_step.values() for seed in values}
    complete = {
        step: [values[seed] for seed in sorted(seeds)]
        for step, values in sorted(by_step.items())
        if len(values) == len(seeds) and None not in values.values()
    }
    return np.asarray(list(complete)), np.asarray(list(complete.values()), dtype=np.float64)


def plot_learning_curve(metrics_file: Path, picture: Path, title: str) -> None:
    """Mean ± 1 standard error over seeds of the mean return of the last 10 training episodes."""
    steps, returns = read_curve(metrics_file)
    label = "1 seed" if returns.ndim == 1 or returns.shape[1] == 1 else _over_seeds(returns.shape[1])
    _plot({label: (steps, returns)}, picture, title)


def plot_learning_curves(metrics_files: Mapping[str, Path], picture: Path, title: str) -> None:
    """The same of several runs, each with its label."""
    curves = {label: read_curve(path) for label, path in metrics_files.items()}
    counts = {returns.shape[1] for _, returns in curves.values() if returns.ndim == 2}
    seeds = "1 seed" if counts == {1} else _over_seeds(max(counts)) if counts else ""
    _plot(curves, picture, f"{title}, {seeds}" if seeds else title)


def _over_seeds(count: int) -> str:
    return f"mean of {count} seeds ± standard error"


def _plot(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], picture: Path, title: str) -> None:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel="environment steps per seed", ylabel="return (last 10 episodes)")
    colours = [BLUE] if len(curves) == 1 else colormaps["viridis"](np.linspace(0, 0.9, len(curves)))
    for (label, (steps, returns)), colour in zip(curves.items(), colours):
        if len(steps):
            _draw(axes, steps, returns, label, colour)
    if axes.lines:
        axes.legend(frameon=False, loc="best", fontsize="medium" if len(curves) < 8 else "x-small")
    else:
        axes.text(0.5, 0.5, "no episode has ended yet", ha="center", transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(picture, dpi=150)


def _draw(axes: Any, steps: np.ndarray, returns: np.ndarray, label: str, colour: Any) -> None:
    mean = returns.mean(axis=1)
    axes.plot(steps, mean, color=colour, marker="o" if len(steps) == 1 else None, label=label)
    if returns.shape[1] > 1:
        error = returns.std(axis=1, ddof=1) / np.sqrt(returns.shape[1])
        axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.25, linewidth=0)
