"""The learning table and picture of the documentation, from the folders of finished runs.

for env in Hopper-v5 HalfCheetah-v5 Walker2d-v5; do
  train="ppo-dice train $env --algo ppo --seeds 10 --total-timesteps 1_000_000"
  $train --out runs/learning/$env-default
  $train --out runs/learning/$env-small-head --policy-head-gain 0.01
done
python benchmarks/learning.py runs/learning
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ppo_dice.reports.learning_curve import read_curve

ENVS = ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5")
VARIANTS = {"default": "#0072b2", "small-head": "#d55e00"}
# Mean and standard deviation over seeds, from the raw logs of the paper's own code base (gym v2).
BASELINE = {"Hopper-v5": (2267, 639), "HalfCheetah-v5": (3115, 1354), "Walker2d-v5": (3597, 894)}
BASELINE_SEEDS = 10
HERE = Path(__file__).parent
TABLE, RAW = HERE / "results" / "learning.md", HERE / "results" / "learning.json"
PICTURE = HERE.parent / "docs" / "_static" / "learning_curves.png"


def main(folder: Path) -> None:
    runs = {
        (env, variant): folder / f"{env}-{variant}"
        for env in ENVS
        for variant in VARIANTS
        if (folder / f"{env}-{variant}" / "result.json").is_file()
    }
    finals = {key: final_returns(run) for key, run in runs.items()}
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(
        json.dumps({run.name: describe(run, finals[key]) for key, run in runs.items()}, indent=2) + "\n"
    )
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


def table(finals: dict[tuple[str, str], np.ndarray]) -> str:
    lines = [
        "| environment | `default` | `--policy-head-gain 0.01` | the baseline's own logs |",
        "|---|---|---|---|",
    ]
    for env in ENVS:
        ours = [interval(finals[env, variant]) if (env, variant) in finals else "–" for variant in VARIANTS]
        mean, deviation = BASELINE[env]
        theirs = f"{mean} ± {deviation / np.sqrt(BASELINE_SEEDS):.0f}"
        lines.append(f"| {env} | {' | '.join(ours)} | {theirs} |")
    return "\n".join(lines) + "\n"


def interval(returns: np.ndarray) -> str:
    return f"{returns.mean():.0f} ± {returns.std(ddof=1) / np.sqrt(len(returns)):.0f}"


def draw(runs: dict[tuple[str, str], Path]) -> None:
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    for axes, env in zip(figure.subplots(1, len(ENVS)), ENVS):
        for variant, colour in VARIANTS.items():
            if (env, variant) not in runs:
                continue
            steps, returns = read_curve(runs[env, variant] / "metrics.jsonl")
            mean = returns.mean(axis=1)
            error = returns.std(axis=1, ddof=1) / np.sqrt(returns.shape[1])
            axes.plot(steps / 1e6, mean, color=colour, label=variant)
            axes.fill_between(steps / 1e6, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
        axes.axhline(BASELINE[env][0], color="0.4", linestyle="--", linewidth=1, label="baseline's logs, end")
        axes.set(title=env, xlabel="million steps per seed", ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.axes[0].set_ylabel("return (last 10 episodes)")
    figure.axes[0].legend(frameon=False, loc="upper left")
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
