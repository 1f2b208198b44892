"""Estimated against true divergence."""

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import BLACK, BLUE, GREEN, GREY, RED, Data, panels

TITLE = "Estimated against true divergence"
_SYSTEMS = {
    "deterministic": "deterministic, 3 actions",
    "stochastic": "stochastic, 3 actions",
    "gaussian": "linear-Gaussian, continuous",
}
_ESTIMATORS = {
    "averaged": ("difference form, successor averaged", BLUE, "o"),
    "difference": ("difference form", GREEN, "s"),
    "paper": ("paper's form, sampled a'", RED, "^"),
}
_APART = {"averaged": 0.94, "difference": 1.0, "paper": 1.06}


def picture(data: Data) -> Figure:
    """A panel for each kind of system; medians with 10–90 % of the rollouts."""
    figure, axes = panels(len(_SYSTEMS), width=4.3, height=4.4, sharey=True)
    for one, (system, title) in zip(axes, _SYSTEMS.items()):
        rows = _statistics(data, system)
        true = np.array([row["true"] for row in rows])
        one.plot(true, true, color=BLACK, linewidth=1, label="ideal")
        ends = {end: [row[end] for row in rows] for end in ("lower", "upper")}
        one.fill_between(true, ends["lower"], ends["upper"], color=GREY, alpha=0.15, linewidth=0)
        for name, (text, colour, marker) in _ESTIMATORS.items():
            low, middle, high = np.array([row[name] for row in rows]).T
            below, above = np.maximum(middle - low, 0), np.maximum(high - middle, 0)
            one.errorbar(
                _APART[name] * true,
                middle,
                yerr=[below, above],
                fmt=marker,
                color=colour,
                markersize=4,
                linewidth=1,
                label=text,
            )
        one.set(xscale="log", yscale="log", title=title, xlabel="true KL(μ'‖μ)")
        one.set_ylim(5e-4, 1)
    axes[0].set_ylabel("estimate")
    axes[0].text(0.004, 0.14, "grey: the sandwich", color=GREY, fontsize=9)
    axes[0].legend(frameon=False, loc="lower right", fontsize=8)
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    rows = {system: _statistics(data, system) for system in _SYSTEMS}
    everywhere = [row for system in _SYSTEMS for row in rows[system]]
    worst = 100 * max(abs(row["averaged"][1] / row["true"] - 1) for row in everywhere)
    found = {system: _mean_ratio(rows[system], "difference") for system in _SYSTEMS}
    paper = [row["paper"][1] / row["true"] for row in everywhere]
    return (
        f"From {data['sizes']['n_steps']:,} steps, the median of the difference form with an averaged "
        f"successor is nowhere off by more than {worst:.0f} %; the paper's form with one sampled a' finds "
        f"between {min(paper):.2f} and {max(paper):.2f} of the truth.",
        "The paper's form finds too much near π, where g tells the sampled actions from others, and too "
        "little far from it.",
        f"With one sampled successor the difference form finds {found['gaussian']:.2f} of the divergence of "
        f"the linear-Gaussian system on average, {found['stochastic']:.2f} on the stochastic processes and "
        f"{found['deterministic']:.2f} on the deterministic ones.",
    )


def table(data: Data) -> Table:
    """Median of estimate / truth, with 10–90 %."""
    rows = [
        [_SYSTEMS[system], f"{row['true']:.3g}", *(_ratio(row[name], row["true"]) for name in _ESTIMATORS)]
        for system in _SYSTEMS
        for row in _statistics(data, system)
    ]
    return Table(
        ["estimate / truth: median (10–90 %)", "true KL", *(text for text, _, _ in _ESTIMATORS.values())],
        rows,
    )


def _statistics(data: Data, system: str) -> list[Data]:
    """For each distance, the quantiles of every estimator and the mean ends of the sandwich."""
    points = [point for point in data["points"] if point["system"] == system]
    rows = []
    for true in sorted({round(point["true"], 6) for point in points}):
        here = [point for point in points if round(point["true"], 6) == true]
        quantiles = {
            name: np.quantile(
                [value for point in here for value in point["estimates"][name]], (0.1, 0.5, 0.9)
            )
            for name in _ESTIMATORS
        }
        ends = {end: float(np.mean([point[end] for point in here])) for end in ("lower", "upper")}
        rows.append({"true": true, **ends, **quantiles})
    return rows


def _mean_ratio(rows: list[Data], name: str) -> float:
    return float(np.mean([row[name][1] / row["true"] for row in rows]))


def _ratio(quantiles: np.ndarray, true: float) -> str:
    low, middle, high = quantiles / true
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"
