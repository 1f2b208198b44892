"""The learning curve of one run, from its metrics file."""

import json
from pathlib import Path

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
    from matplotlib.figure import Figure

    steps, returns = read_curve(metrics_file)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel="environment steps per seed", ylabel="return (last 10 episodes)")
    if len(steps):
        n_seeds = returns.shape[1]
        mean = returns.mean(axis=1)
        marker = "o" if len(steps) == 1 else None
        label = "1 seed" if n_seeds == 1 else f"mean of {n_seeds} seeds ± standard error"
        axes.plot(steps, mean, color=BLUE, marker=marker, label=label)
        if n_seeds > 1:
            error = returns.std(axis=1, ddof=1) / np.sqrt(n_seeds)
            axes.fill_between(steps, mean - error, mean + error, color=BLUE, alpha=0.25, linewidth=0)
        axes.legend(frameon=False, loc="best")
    else:
        axes.text(0.5, 0.5, "no episode has ended yet", ha="center", transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(picture, dpi=150)
