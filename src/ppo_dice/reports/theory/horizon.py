"""How loose each bound of J(π') is, against the horizon."""

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import BLACK, BLUE, GREEN, GREY, ORANGE, RED, SKY, Data, name_lines, panels

TITLE = "What each lower bound of J(π') gives away, against the horizon"
_LINES = {
    "actions": ("γ/(1−γ)·E_d‖π'−π‖₁", RED),
    "kl": ("√(2 KL(μ'‖μ))", BLUE),
    "state_actions": ("‖μ'−μ‖₁", SKY),
    "states": ("‖d'−d‖₁", GREEN),
    "span": ("span(h)/2ε·‖d'−d‖₁", ORANGE),
    "needed": ("|L−J'|/ε, the truth", BLACK),
}
_FAMILIES = {"garnet": "random processes", "river_swim": "a river of 20 states"}
_NO_MORE_THAN = 2.0


def picture(data: Data) -> Figure:
    """Medians over pairs of policies, on logarithmic axes."""
    figure, axes = panels(len(data["families"]), width=5.4, height=4.2, sharey=True)
    for one, (family, rows) in zip(axes, data["families"].items()):
        horizons = [1 / (1 - row["gamma"]) for row in rows]
        one.set(xscale="log", yscale="log", title=_FAMILIES[family], xlabel="horizon 1/(1−γ)")
        for name, (_, colour) in _LINES.items():
            one.plot(horizons, _medians(rows, name), color=colour, marker="o", markersize=3)
        one.axhline(_NO_MORE_THAN, color=GREY, linestyle=":", linewidth=1)
        one.text(horizons[0], 2.2, "no two distributions are further apart", color=GREY, fontsize=8)
    smallest = min(_medians([row], "needed")[0] for rows in data["families"].values() for row in rows)
    axes[0].set_ylim(smallest / 2, 25)
    axes[0].set_ylabel("penalty of the bound, in units of ε")
    for one, rows in zip(axes, data["families"].values()):
        name_lines(one, [(text, _medians(rows, name)[-1], c) for name, (text, c) in _LINES.items()])
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    rows, sizes = data["families"]["garnet"], data["sizes"]
    gammas = rows[0]["gamma"], rows[-1]["gamma"]
    growth = {name: _medians(rows, name)[-1] / _medians(rows, name)[0] for name in ("actions", "kl")}
    return (
        f"From γ = {gammas[0]:g} to {gammas[1]:g} the penalty of the bound on action probabilities grows "
        f"{growth['actions']:.0f}-fold, that of the bound on KL(μ'‖μ) {growth['kl']:.2f}-fold.",
        f"The policies are the same throughout, {sizes['distance']:g} apart in every state.",
        "No two distributions are more than 2 apart, so above the dotted line the bound says nothing.",
        "At the shortest horizon the bound on action probabilities is the tighter of the two.",
        "All bounds give away much more than was needed (black).",
    )


def table(data: Data) -> Table:
    """Medians by family and γ."""
    rows = [
        [_FAMILIES[family], f"{row['gamma']:g}", *(f"{_medians([row], name)[0]:.3g}" for name in _LINES)]
        for family, family_rows in data["families"].items()
        for row in family_rows
    ]
    return Table(["", "γ", *(text for text, _ in _LINES.values())], rows)


def _medians(rows: list[Data], name: str) -> list[float]:
    return [float(np.median(np.abs(row[name]))) for row in rows]
