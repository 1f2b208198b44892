"""What g does at π' = π under each treatment of the ends of episodes."""

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import BLUE, GREEN, GREY, ORANGE, RED, SKY, Data, name_lines, panels

TITLE = "The ends of episodes: five treatments at π' = π"
_COLOURS = {
    "naive mask": RED,
    "Algorithm 1": ORANGE,
    "restart": BLUE,
    "absorbing": GREEN,
    "absorbing-all": SKY,
}
_CONSISTENT = ("restart", "absorbing", "absorbing-all")


def picture(data: Data) -> Figure:
    """Left what the objective reads, right the level of g."""
    figure, (values, levels) = panels(2, width=5.6, height=4.0)
    for axes, what in ((values, "values"), (levels, "levels")):
        for name, colour in _COLOURS.items():
            axes.plot(data["updates"], data[what][name], color=colour)
        axes.set_xlabel("updates of g")
    values.axhline(_constants(data), color=GREY, linestyle=":", linewidth=1)
    values.text(
        data["updates"][-1],
        _constants(data) + 0.01,
        "−log(1 − p), by constants alone",
        color=GREY,
        fontsize=8,
        ha="right",
    )
    values.set(title="the divergence found; the truth is 0", ylabel="objective")
    levels.set(title="the level of g", ylabel="E_μ g")
    apart = [name for name in _COLOURS if name not in _CONSISTENT]
    for axes, what in ((values, "values"), (levels, "levels")):
        names = [(name, data[what][name][-1], _COLOURS[name]) for name in apart]
        name_lines(axes, [*names, ("the three chains", data[what]["restart"][-1], BLUE)])
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    values, level = data["values"], data["levels"]["naive mask"][-1]
    consistent = max(abs(values[name][-1]) for name in _CONSISTENT)
    return (
        f"The truth is 0: after {data['sizes']['n_updates']:,} updates the naive mask reads "
        f"{values['naive mask'][-1]:.2f} and its g has sunk to {level:.1f}; Algorithm 1, literally, reads "
        f"{values['Algorithm 1'][-1]:.4f}; the three consistent chains are within {consistent:.0e} of 0.",
        f"Episodes end with p = {data['ending_share']:.3f} of the steps.",
        f"Constants alone reach −log(1 − p) = {_constants(data):.3f} with V'_g(s') masked at the ends, and "
        "other g go on rising without limit.",
        "Algorithm 1 compares the discounted visitation from s₁ with the undiscounted one of the data.",
    )


def table(data: Data) -> Table:
    """The last value and level of each."""
    rows = [
        [name, f"{data['values'][name][-1]:z.5f}", f"{data['levels'][name][-1]:z.3f}"] for name in _COLOURS
    ]
    return Table(["treatment", "objective at the end", "level of g at the end"], rows)


def _constants(data: Data) -> float:
    """−log(1 − p), the supremum over constants g → −∞."""
    return float(-np.log1p(-data["ending_share"]))
