"""The discriminator that trains: estimates beside the truth, and readings in training."""

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import BLACK, BLUE, GREEN, GREY, RED, Data, panels

TITLE = "The discriminator that trains"
_VERSIONS = {
    "known ratio": ("default: log π'/π and a network", BLUE, "o"),
    "from nothing": ("a network alone", GREEN, "s"),
    "paper": ("paper's form, sampled a'", RED, "^"),
}
_APART = {"known ratio": 0.94, "from nothing": 1.0, "paper": 1.06}
_SMALLEST = 3e-4  # where the axis of readings begins


def picture(data: Data) -> Figure:
    """Two systems with known truth, and tasks on which only the sandwich is known."""
    systems, tasks = _systems(data), data["training"]
    figure, axes = panels(len(systems) + len(tasks), width=3.7, height=4.2)
    for one, system in zip(axes, systems):
        points = [point for point in data["points"] if point["system"] == system]
        true = np.array([point["true"] for point in points])
        one.plot(true, true, color=BLACK, linewidth=1, label="ideal")
        lower, upper = ([point[end] for point in points] for end in ("lower", "upper"))
        one.fill_between(true, lower, upper, color=GREY, alpha=0.15, linewidth=0)
        for name, (text, colour, marker) in _VERSIONS.items():
            found = np.array([point["estimates"][name] for point in points])
            low, middle, high = np.quantile(found, (0.1, 0.5, 0.9), axis=1)
            spread = [np.maximum(middle - low, 0), np.maximum(high - middle, 0)]
            one.errorbar(
                _APART[name] * true,
                middle,
                yerr=spread,
                fmt=marker,
                color=colour,
                markersize=4,
                linewidth=1,
                label=text,
            )
        one.set(xscale="log", yscale="log", title=f"{system} system", xlabel="true KL(μ'‖μ)")
        one.set_ylim(3e-4, 3)
    axes[0].set_ylabel("estimate")
    axes[0].legend(frameon=False, loc="upper left", fontsize=8)
    for one, (task, readings) in zip(axes[len(systems) :], tasks.items()):
        iteration = np.arange(1, len(readings) + 1)
        low, high, estimate = (
            np.array([max(row[name], _SMALLEST) for row in readings])
            for name in ("lower", "upper", "estimate")
        )
        one.fill_between(iteration, low, high, color=GREY, alpha=0.15, linewidth=0)
        one.plot(iteration, estimate, "o", color=BLUE, markersize=4, label="D̂ after each iteration")
        one.set(yscale="log", title=task, xlabel="iteration")
        one.legend(frameon=False, loc="center", fontsize=8)
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    ratio = {system: _ratios(data, system) for system in _systems(data)}
    near, noisy = (np.median(list(ratio[system]["known ratio"].values())) for system in ratio)
    paper = np.concatenate([list(ratio[system]["paper"].values()) for system in ratio])
    inside = {task: _inside(readings) for task, readings in data["training"].items()}
    shares = " and ".join(f"{100 * share:.0f} % on {task}" for task, share in inside.items())
    return (
        f"After the steps of one iteration on {data['sizes']['n_steps']:,} steps of data, the network finds "
        f"{near:.2f} of the divergence of the nearly deterministic system and {noisy:.2f} of the stochastic "
        f"one, where one sampled successor hides part of it; the paper's form finds {paper.min():.2f} to "
        f"{paper.max():.2f} of the truth.",
        "Grey is the sandwich, from the divergence of the actions alone to that over 1 − γ.",
        f"In training the truth is not known. Of the readings {shares} lie inside the sandwich, within two "
        "standard errors of its lower end; one below it would miss part of what the actions alone do.",
    )


def table(data: Data) -> Table:
    """Median of estimate / truth, and the share of readings in training that lie in the sandwich."""
    rows = []
    for system in _systems(data):
        ratios = _ratios(data, system)
        for distance in ratios["paper"]:
            rows.append([system, f"{distance:.3g}", *(f"{ratios[name][distance]:.2f}" for name in _VERSIONS)])
    for task, readings in data["training"].items():
        rows.append([f"{task}: readings in the sandwich", "–", f"{_inside(readings):.2f}", "–", "–"])
    header = [
        "median of estimate / truth",
        "true KL",
        *(text for text, _, _ in _VERSIONS.values()),
    ]
    return Table(header, rows)


def _systems(data: Data) -> list[str]:
    return list(dict.fromkeys(point["system"] for point in data["points"]))


def _ratios(data: Data, system: str) -> dict[str, dict[float, float]]:
    """For each version and distance, the median of estimate / truth."""
    points = [point for point in data["points"] if point["system"] == system]
    return {
        name: {
            round(point["true"], 6): float(np.median(point["estimates"][name]) / point["true"])
            for point in points
        }
        for name in _VERSIONS
    }


def _inside(readings: list[Data]) -> float:
    """The share of readings between the ends of the sandwich, the lower one less two standard errors."""
    inside = [row["lower"] - 2 * row["lower_se"] <= row["estimate"] <= row["upper"] for row in readings]
    return float(np.mean(inside))
