"""Where each update leads."""

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Data,
    name_lines,
    panels,
)

TITLE = "Exact updates of policies that share a parameter"
_STEADY = {
    "bound: states": GREEN,
    "bound: KL": BLUE,
    "bound: actions": RED,
    "CPI": PURPLE,
    "PPO-DICE (λ = 1)": ORANGE,
    "PPO-DICE (λ = .1)": SKY,
}
_OSCILLATING = {
    "TRPO (δ = .01)": RED,
    "PPO-clip (ε = .2)": BLUE,
    "PPO-DICE (λ = .01)": ORANGE,
    "PPO-DICE (λ = .1)": SKY,
}
_WINDOW = 30
"""Updates shown of those that oscillate."""
_NEAR = 0.3
"""The last share of the gain, which is shown of them."""


def picture(data: Data) -> Figure:
    """Left the cautious updates, right the others near the best."""
    figure, (steady, oscillating) = panels(2, width=6.2, height=4.2)
    best, paths = data["best"], {name: path["performance"] for name, path in data["paths"].items()}
    start = next(iter(paths.values()))[0]
    gain = best - start
    for name, colour in _STEADY.items():
        steady.plot(paths[name], color=colour)
    for name, colour in _OSCILLATING.items():
        oscillating.plot(paths[name][: _WINDOW + 1], color=colour, marker="o", markersize=2.5)
    steady.set(
        title="on the aliased ledge: never a step back", ylim=(start - 0.02 * gain, best + 0.06 * gain)
    )
    steady.text(0, best, "the best", color=GREY, va="bottom", fontsize=8)
    oscillating.set(
        title="updates without a guarantee, near the best", ylim=(best - _NEAR * gain, best + 0.02 * gain)
    )
    for axes in (steady, oscillating):
        axes.axhline(best, color=GREY, linestyle=":", linewidth=1)
        axes.set(xlabel="update", ylabel="J")
        axes.ticklabel_format(axis="y", useOffset=False)
    name_lines(steady, [(name, paths[name][-1], colour) for name, colour in _STEADY.items()])
    typical = {name: float(np.mean(paths[name][_WINDOW - 10 : _WINDOW + 1])) for name in _OSCILLATING}
    name_lines(oscillating, [(name, typical[name], colour) for name, colour in _OSCILLATING.items()])
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    paths, sizes = data["paths"], data["sizes"]
    falls = ", ".join(f"{name} {paths[name]['decreases']}" for name in _OSCILLATING)
    states, actions = (_count(paths[f"bound: {what}"]["iterations"]) for what in ("states", "actions"))
    degrading = [row["update"] for row in data["random"] if row["decreases"]]
    return (
        f"On the ledge the bound on states is within 1 % of the best after {states} updates, the bound on "
        f"action probabilities after {actions}, and neither ever steps back.",
        f"Steps back in {sizes['iterations']} updates of the others (right): {falls}.",
        f"Over {sizes['n_problems']} random processes with rewards of unit variance, these made a policy "
        f"worse at least once: {', '.join(degrading) or 'none'}.",
        "Whether a fixed λ is enough depends on the scale of the rewards.",
    )


def table(data: Data) -> Table:
    """One row per update: the ledge, then the random processes."""
    ledge = data["paths"]
    rows = [
        [
            row["update"],
            str(ledge[row["update"]]["decreases"]),
            f"{ledge[row['update']]['worst_step']:.2g}",
            _count(ledge[row["update"]]["iterations"]),
            f"{row['paths_with_decrease']} of {row['paths']}",
            f"{row['worst_step']:.2g}",
            f"{row['reached']}",
            _count(row["median_iterations"]),
        ]
        for row in data["random"]
    ]
    header = [
        "update",
        "ledge: steps back",
        "worst step",
        "updates to 99 %",
        "random: paths with a step back",
        "worst step",
        "paths that came within 1 %",
        "updates to 99 %, median",
    ]
    return Table(header, rows)


def _count(value: float | int | None) -> str:
    return "never" if value is None else f"{value:g}"
