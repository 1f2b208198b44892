"""What a reading says, and what the fitted g is worth."""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import BLACK, BLUE, RED, Data, panels

TITLE = "Reading and worth of the fitted g, against the number of steps"
_FORMS = {"difference": ("difference form", BLUE), "paper": ("paper's form, sampled a'", RED)}
_KINDS = {"estimates": ("reading", "-", "o"), "values": ("worth", "--", "s")}


def picture(data: Data) -> Figure:
    """At π' = π, away from it, and at π' = π against the ridge; medians with 10–90 %."""
    distances = sorted({row["true"] for row in data["by_steps"]})
    figure, axes = panels(len(distances) + 1, width=4.4, height=4.2)
    for one, true in zip(axes, distances):
        rows = [row for row in data["by_steps"] if row["true"] == true]
        _draw(one, rows, "n_steps")
        one.axhline(true, color=BLACK, linewidth=1)
        title = "π' = π: the truth is 0" if true == 0 else f"the truth is {true:g} (black)"
        one.set(xscale="log", title=title, xlabel="steps N")
        ticks = sorted({row["n_steps"] for row in rows})
        one.set_xticks(ticks, [str(n) for n in ticks], fontsize=8)
        one.minorticks_off()
    last = axes[-1]
    _draw(last, data["by_ridge"], "ridge")
    last.axhline(0, color=BLACK, linewidth=1)
    last.set(xscale="log", title=f"π' = π, N = {data['sizes']['few']}: less and less ridge", xlabel="ridge")
    last.set_yscale("symlog", linthresh=0.01)
    last.invert_xaxis()
    axes[0].set_ylabel("KL")
    axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    few, ridge = data["sizes"]["few"], min(row["ridge"] for row in data["by_ridge"])
    same = [row for row in data["by_steps"] if row["true"] == 0]
    reading, worth = (
        _medians([row for row in same if row["n_steps"] == few], "paper", kind) for kind in _KINDS
    )
    little = [row for row in data["by_ridge"] if row["ridge"] == ridge]
    exact = max(abs(value) for row in same for value in row["difference"]["estimates"])
    return (
        f"At π' = π the truth is 0: from {few} steps the paper's form reads {reading:.4f} with a g that is "
        f"worth {worth:.4f}, and the difference form reads {exact:.1g}.",
        "The worth is the value of the fitted g under the population objective, where nothing can be "
        "memorised.",
        f"With a ridge of {ridge:g} instead of {data['sizes']['ridge']:g} the paper's form reads "
        f"{_medians(little, 'paper', 'estimates'):.4f} with a g worth "
        f"{_medians(little, 'paper', 'values'):.2g} (right).",
        "Away from π, reading and worth of the difference form close in on the truth.",
        "Those of the paper's form settle below it, because one sampled a' limits what it can see.",
    )


def table(data: Data) -> Table:
    """Medians."""
    groups = sorted({(row["true"], row["n_steps"]) for row in data["by_steps"]})
    rows = [
        _row(f"KL {true:g}, N = {n}", [r for r in data["by_steps"] if (r["true"], r["n_steps"]) == (true, n)])
        for true, n in groups
    ]
    rows += [
        _row(
            f"KL 0, N = {data['sizes']['few']}, ridge {ridge:g}",
            [r for r in data["by_ridge"] if r["ridge"] == ridge],
        )
        for ridge in sorted({row["ridge"] for row in data["by_ridge"]}, reverse=True)
    ]
    return Table(
        ["medians", *(f"{form}, {kind}" for form, _ in _FORMS.values() for kind, _, _ in _KINDS.values())],
        rows,
    )


def _draw(axes: Axes, rows: list[Data], variable: str) -> None:
    places = sorted({row[variable] for row in rows})
    for form, (text, colour) in _FORMS.items():
        for kind, (word, style, marker) in _KINDS.items():
            groups = [[row for row in rows if row[variable] == place] for place in places]
            low, middle, high = np.array([_quantiles(group, form, kind) for group in groups]).T
            axes.plot(
                places,
                middle,
                color=colour,
                linestyle=style,
                marker=marker,
                markersize=4,
                label=f"{text}: {word}",
            )
            axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)


def _quantiles(rows: Iterable[Data], form: str, kind: str) -> np.ndarray:
    return np.quantile([value for row in rows for value in row[form][kind]], (0.1, 0.5, 0.9))


def _medians(rows: Iterable[Data], form: str, kind: str) -> float:
    return float(_quantiles(rows, form, kind)[1])


def _row(name: str, rows: list[Data]) -> list[str]:
    return [name, *(f"{_quantiles(rows, form, kind)[1]:.3g}" for form in _FORMS for kind in _KINDS)]
