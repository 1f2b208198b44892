"""The certificate from action probabilities, and its ends taken over the wrong states."""

from matplotlib.figure import Figure

from ppo_dice.reports.theory.page import Table
from ppo_dice.reports.theory.style import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Data, name_lines, panels

TITLE = "The sandwich around KL(μ'‖μ)"
_BANDS = {
    "safe_upper": ("max_s KL(π'‖π)/(1−γ)", ORANGE),
    "upper": ("E_d' KL(π'‖π)/(1−γ)", BLUE),
    "lower": ("E_d' KL(π'‖π)", GREEN),
}
_PAIRS = {"far": "random", "near": "near"}
_FAILURES = {
    ("far", "plain_lower"): ("E_d KL(π'‖π) as lower end", RED, "-"),
    ("near", "plain_lower"): ("the same, π' near π", ORANGE, "-"),
    ("far", "plain_upper"): ("E_d KL(π'‖π)/(1−γ) as upper end", SKY, "-"),
    ("far", "lower"): ("both ends under d'", BLUE, "--"),
}


def picture(data: Data) -> Figure:
    """Left how wide the sandwich is, right how often an end is on the wrong side."""
    figure, (width, failures) = panels(2, width=5.8, height=4.0)
    rows = data["rows"]["far"]
    horizons = [1 / (1 - row["gamma"]) for row in rows]
    width.axhline(1, color=BLACK, linewidth=1)
    for end, (_, colour) in _BANDS.items():
        low, middle, high = (list(part) for part in zip(*(row[end]["quantiles"] for row in rows)))
        width.plot(horizons, middle, color=colour)
        width.fill_between(horizons, low, high, color=colour, alpha=0.25, linewidth=0)
    width.set(xscale="log", yscale="log", xlabel="horizon 1/(1−γ)", ylabel="end / KL(μ'‖μ)")
    width.set_title("median and 10–90 % of the ends")
    for (pair, end), (_, colour, style) in _FAILURES.items():
        percent = _percent(data, pair, end)
        failures.plot(horizons, percent, color=colour, linestyle=style, marker="o", markersize=3)
    failures.set(xscale="log", xlabel="horizon 1/(1−γ)", ylabel="% of cases on the wrong side")
    failures.set_title("how often an end is no bound")
    failures.set_ylim(bottom=-0.5)
    ends = [(text, rows[-1][end]["quantiles"][1], colour) for end, (text, colour) in _BANDS.items()]
    name_lines(width, ends)
    name_lines(failures, [(text, _percent(data, *key)[-1], c) for key, (text, c, _) in _FAILURES.items()])
    return figure


def sentences(data: Data) -> tuple[str, ...]:
    """What to see."""
    sizes, last = data["sizes"], data["rows"]["far"][-1]
    far, near = (_percent(data, pair, "plain_lower") for pair in ("far", "near"))
    right = max(max(_percent(data, pair, end)) for pair in data["rows"] for end in ("lower", "upper"))
    cases = sum(len(rows) for rows in data["rows"].values()) * sizes["n_pairs"]
    return (
        f"In {cases:,} random cases the ends under d' fail in {right:g} %, the lower end under d in "
        f"{min(far):.0f} to {max(far):.0f} % for two random policies.",
        f"A plain mean over a rollout is a mean under d; at γ = {last['gamma']:g} it is from "
        f"{_range(last, 'plain_lower')} of the divergence, and the lower end under d' from "
        f"{_range(last, 'lower')} (10–90 % of the cases).",
        f"Where π' is {sizes['near']:g} of the way from π to the other policy it is {min(near):.0f} to "
        f"{max(near):.0f} %.",
        "The divergence lies close to the lower end, so the upper end exceeds it by almost the horizon: "
        f"{last['upper']['quantiles'][1]:.0f} times at γ = {last['gamma']:g}, in the median.",
    )


def table(data: Data) -> Table:
    """Medians and failures by γ."""
    rows = [
        [
            _PAIRS[pair],
            f"{row['gamma']:g}",
            *(f"{row[end]['quantiles'][1]:.3g}" for end in ("lower", "upper", "safe_upper")),
            _range(row, "plain_lower"),
            *(
                f"{100 * row[end]['failing']:.1f} %"
                for end in ("lower", "upper", "plain_lower", "plain_upper")
            ),
        ]
        for pair, pair_rows in data["rows"].items()
        for row in pair_rows
    ]
    header = [
        "policies",
        "γ",
        "lower end / KL, median",
        "upper end / KL",
        "safe upper end / KL",
        "lower under d / KL, 10–90 %",
        "lower fails",
        "upper fails",
        "lower under d fails",
        "upper under d fails",
    ]
    return Table(header, rows)


def _percent(data: Data, pair: str, end: str) -> list[float]:
    return [100 * row[end]["failing"] for row in data["rows"][pair]]


def _range(row: Data, end: str) -> str:
    """From the lowest to the highest quantile of an end in units of the divergence."""
    return f"{row[end]['quantiles'][0]:.2f} to {row[end]['quantiles'][-1]:.2f}"
