"""The learning table and picture of the documentation, from the folders of finished runs.

for env in Hopper-v5 HalfCheetah-v5 Walker2d-v5; do
  ppo-dice train $env --algo ppo --seeds 10 --total-timesteps 1_000_000 --out runs/learning/$env
done
python benchmarks/learning.py runs/learning
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.learning_curve import read_curve

# Mean and standard deviation over seeds, from the raw logs of the paper's own code base (gym v2).
BASELINE = {"Hopper-v5": (2267, 639), "HalfCheetah-v5": (3115, 1354), "Walker2d-v5": (3597, 894)}
BASELINE_SEEDS = 10
BLUE, GREY = "#0072b2", "0.4"
HERE = Path(__file__).parent
TABLE, RAW = HERE / "results" / "learning.md", HERE / "results" / "learning.json"
PICTURE = HERE.parent / "docs" / "_static" / "learning_curves.png"


def main(folder: Path) -> None:
    runs = {env: folder / env for env in BASELINE}
    finals = {env: final_returns(run) for env, run in runs.items()}
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps({env: describe(runs[env], finals[env]) for env in runs}, indent=2) + "\n")
    TABLE.write_text(table(finals))
    draw(runs)
    print(TABLE.read_text())


def final_returns(run: Path) -> np.ndarray:
    result = json.loads((run / "result.json").read_text())
    assert result["complete"], f"{run} was interrupted"
    return np.asarray(list(result["final_return"].values()))


def describe(run: Path, returns: np.ndarray) -> dict[str, object]:
    config = json.loads((run / "config.json").read_text())
    kept = {key: config[key] for key in ("env", "engine", "seeds", "run", "versions", "config")}
    return kept | {"final_return": [round(float(value), 1) for value in returns]}


def table(finals: dict[str, np.ndarray]) -> str:
    lines = [
        "| environment | ours, `default` | least and most of ten seeds | the baseline's own logs |",
        "|---|---|---|---|",
    ]
    for env, (mean, deviation) in BASELINE.items():
        ours = finals[env]
        error = ours.std(ddof=1) / np.sqrt(len(ours))
        theirs = f"{mean} ± {deviation / np.sqrt(BASELINE_SEEDS):.0f}"
        lines.append(
            f"| {env} | {ours.mean():.0f} ± {error:.0f} | {ours.min():.0f}, {ours.max():.0f} | {theirs} |"
        )
    return "\n".join(lines) + "\n"


def draw(runs: dict[str, Path]) -> None:
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    for axes, (env, run) in zip(figure.subplots(1, len(runs)), runs.items()):
        steps, returns = read_curve(run / "metrics.jsonl")
        mean = returns.mean(axis=1)
        error = returns.std(axis=1, ddof=1) / np.sqrt(returns.shape[1])
        axes.plot(steps / 1e6, mean, color=BLUE, label="mean of 10 seeds ± standard error")
        axes.fill_between(steps / 1e6, mean - error, mean + error, color=BLUE, alpha=0.2, linewidth=0)
        axes.axhline(BASELINE[env][0], color=GREY, linestyle="--", linewidth=1, label="baseline's logs, end")
        axes.set(title=env, xlabel="million steps per seed", ylim=(min(0, mean.min()), None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.axes[0].set_ylabel("return (last 10 episodes)")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=2)
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
