"""What the pictures have in common."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, BLACK, GREY = "#56b4e9", "#cc79a7", "#000000", "#777777"
"""Colours of Okabe and Ito, which people with any kind of colour vision can tell apart."""

Data = dict[str, Any]


def panels(count: int, width: float = 4.6, height: float = 3.9, **options: Any) -> tuple[Figure, list[Axes]]:
    """Axes side by side."""
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = list(figure.subplots(1, count, squeeze=False, **options)[0])
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25)
    return figure, axes


def name_lines(axes: Axes, names: Sequence[tuple[str, float, str]], gap: float = 0.06) -> None:
    """Write names in their colours beside the right ends of lines, moved apart where they would overlap.

    A name is (text, y at the end of its line, colour).
    """
    x_end = axes.get_xlim()[1]
    in_axes = axes.transData + axes.transAxes.inverted()
    ordered = sorted(names, key=lambda name: name[1])
    heights = _apart([float(in_axes.transform((x_end, y))[1]) for _, y, _ in ordered], gap)
    for (text, _, colour), height in zip(ordered, heights):
        axes.text(1.02, height, text, color=colour, transform=axes.transAxes, va="center", fontsize=9)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights, which ascend, at least a gap apart; names that touch stay centred on their lines."""
    groups: list[tuple[float, int]] = []  # the centre and the size of names that are a gap apart
    for number, height in enumerate(heights):
        room_above = gap * (len(heights) - 1 - number)
        groups.append((min(height, 1 - room_above), 1))
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _bottom(groups[-1], gap):
            (low, n_low), (high, n_high) = groups[-2:]
            groups[-2:] = [((low * n_low + high * n_high) / (n_low + n_high), n_low + n_high)]
    return [_bottom(group, gap) + k * gap for group in groups for k in range(group[1])]


def _top(group: tuple[float, int], gap: float) -> float:
    return group[0] + (group[1] - 1) * gap / 2


def _bottom(group: tuple[float, int], gap: float) -> float:
    return group[0] - (group[1] - 1) * gap / 2
