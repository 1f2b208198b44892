"""What was tried with PPO-DICE, as a table and a picture, from benchmarks/results/tried.json.

python benchmarks/tried.py                            # make the table and the picture anew
python benchmarks/tried.py add GROUP ARM RUN [RUN …]      # first take in runs: folders of `ppo-dice train`

Arms of a group were trained with the same seeds, steps, backend and machine; only they are compared.
"""

import json
import sys
from pathlib import Path

import numpy as np
import scipy.stats
from matplotlib.figure import Figure

from ppo_dice.reports.learning_curve import read_curve

HERE = Path(__file__).parent
RAW, TABLE = HERE / "results" / "tried.json", HERE / "results" / "tried.md"
PICTURE = HERE.parent / "docs" / "_static" / "tried.png"
BASELINE = "PPO"
COLOURS = ("#777777", "#e69f00", "#0072b2", "#000000", "#cc79a7", "#d55e00")
POINTS = 200  # of a curve that is kept


def main(arguments: list[str]) -> None:
    groups = json.loads(RAW.read_text())
    if arguments[:1] == ["add"]:
        group, arm, *folders = arguments[1:]
        for folder in map(Path, folders):
            add(groups, group, arm, folder)
        RAW.write_text(json.dumps(groups) + "\n")
    TABLE.write_text("\n".join(table(group) for group in groups))
    draw(groups)
    print(TABLE.read_text())


def add(groups: list[dict], title: str, arm: str, folder: Path) -> None:
    """Take the seeds of a finished run into an arm of a group."""
    group = next(group for group in groups if group["title"] == title)
    config, result = (json.loads((folder / name).read_text()) for name in ("config.json", "result.json"))
    assert result["complete"], f"{folder} was interrupted"
    steps, returns = read_curve(folder / "metrics.jsonl")
    kept = np.unique(np.linspace(0, len(steps) - 1, POINTS).astype(int))
    arms = group["environments"].setdefault(config["env"], {})
    mine = arms.setdefault(arm, {"final_return": {}, "steps": steps[kept].tolist(), "curves": {}})
    for place, seed in enumerate(config["seeds"]):
        mine["final_return"][str(seed)] = round(result["final_return"][str(seed)], 1)
        mine["curves"][str(seed)] = np.round(returns[kept, place], 1).tolist()


def table(group: dict) -> str:
    """Mean ± standard error of every arm, and its paired difference to PPO with a 95 % interval."""
    lines = [f"### {group['title']}", "", group["setting"], ""]
    lines += [
        "| environment | arm | seeds | return | less PPO, paired, 95 % interval |",
        "|---|---|---:|---:|---:|",
    ]
    for env, arms in group["environments"].items():
        for name, arm in arms.items():
            returns = np.array(list(arm["final_return"].values()))
            lines.append(
                f"| {env} | {name} | {len(returns)} | {returns.mean():.0f} ± {standard_error(returns):.0f} "
                f"| {difference(arm, arms.get(BASELINE)) if name != BASELINE else ''} |"
            )
    return "\n".join(lines) + "\n"


def difference(arm: dict, baseline: dict | None) -> str:
    """Over the seeds that both have."""
    shared = sorted(set(arm["final_return"]) & set((baseline or arm)["final_return"]))
    if baseline is None or len(shared) < 2:
        return "–"
    differences = np.array([arm["final_return"][k] - baseline["final_return"][k] for k in shared])
    half = scipy.stats.t.ppf(0.975, len(shared) - 1) * standard_error(differences)
    mean = differences.mean()
    return f"{mean:+.0f} ({mean - half:+.0f} to {mean + half:+.0f})"


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def draw(groups: list[dict]) -> None:
    """Curves of the groups that are to be shown: mean over seeds ± standard error."""
    shown = [(group, env) for group in groups if group["shown"] for env in group["environments"]]
    figure = Figure(figsize=(5.2 * len(shown), 4.4), layout="constrained")
    for axes, (group, env) in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown):
        for colour, (name, arm) in zip(COLOURS, group["environments"][env].items()):
            curves = np.array(list(arm["curves"].values()), float)
            if curves.size == 0:
                continue
            mean, error = np.nanmean(curves, axis=0), np.nanstd(curves, axis=0, ddof=1) / np.sqrt(len(curves))
            steps = np.array(arm["steps"]) / 1e6
            axes.plot(steps, mean, color=colour, label=name)
            axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=env, xlabel="million steps per seed")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    handles, labels = max(
        (axes.get_legend_handles_labels() for axes in figure.axes), key=lambda both: len(both[1])
    )
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    figure.axes[0].set_ylabel("return (last 10 episodes)")
    figure.savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1:])
