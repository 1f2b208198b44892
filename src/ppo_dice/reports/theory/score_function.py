"""The direction of the score-function gradient against the level of g."""

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import BLUE, GREEN, GREY, RED, Data, name_lines, panels

TITLE = "The score function: Eq. 20 as printed, and two repairs"
_VERSIONS = {
    "printed": ("Eq. 20 as printed", RED),
    "two actions": ("two independent actions", BLUE),
    "baseline": ("baseline E_π' g(s',·)", GREEN),
}
_SHOWN = (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)


def picture(data: Data) -> Figure:
    """Medians over processes, with the whole range."""
    figure, (axes,) = panels(1, width=7.2, height=4.2)
    for version, (_, colour) in _VERSIONS.items():
        low, middle, high = _range(data, version)
        axes.plot(data["levels"], middle, color=colour)
        axes.fill_between(data["levels"], low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.axvline(1 / data["gamma"], color=GREY, linestyle=":", linewidth=1)
    axes.text(1 / data["gamma"] + 0.04, -0.95, "1/γ", color=GREY)
    axes.set(xlabel="level of g, which the objective leaves free", ylabel="cosine with the true gradient")
    axes.set_ylim(-1.06, 1.06)
    name_lines(axes, [(text, _range(data, version)[1][-1], c) for version, (text, c) in _VERSIONS.items()])
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    printed = _range(data, "printed")[1]
    at_zero, at_two = (float(np.interp(level, data["levels"], printed)) for level in (0.0, 2.0))
    two, baseline = (_range(data, version) for version in ("two actions", "baseline"))
    return (
        f"The median cosine of the printed estimator with the true gradient falls from {at_zero:.2f} at "
        f"level 0 to {at_two:.2f} at level 2, though a constant added to g changes nothing that the "
        "objective knows of.",
        "Where the level is well above 1/γ, the printed regulariser drives the policies apart.",
        f"Two independent actions have a median of {np.median(two[1]):.4f} and no case below "
        f"{two[0].min():.3f}; the baseline has {np.median(baseline[1]):.2f} and {baseline[0].min():.2f}.",
        "The gradients are exact expectations, so none of this is noise.",
    )


def table(data: Data) -> Table:
    """Median (range) at some levels."""
    levels = np.asarray(data["levels"])
    places = [int(np.abs(levels - level).argmin()) for level in _SHOWN]
    rows = []
    for version, (text, _) in _VERSIONS.items():
        low, middle, high = _range(data, version)
        rows.append([text, *(f"{middle[k]:.3f} ({low[k]:.2f}…{high[k]:.2f})" for k in places)])
    return Table(["cosine: median (range)", *(f"level {levels[k]:g}" for k in places)], rows)


def _range(data: Data, version: str) -> np.ndarray:
    """Least, median and greatest cosine of any process, for each level."""
    return np.quantile(np.asarray(data["cosines"][version]), (0, 0.5, 1), axis=0)
