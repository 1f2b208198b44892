"""Measure speed on Atari: `python benchmarks/pixels.py [--quick]` with the Python that has ppo-dice.

Pong with the paper's settings, 8 × 128 steps and 4 × 4 minibatches of 256, against Stable-Baselines3's PPO
with its own Atari wrappers. Turns are taken as in run.py.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from peers import PYTHON as PEERS_PYTHON
from peers import install_peers
from run import FULL, QUICK, Contestant, cores, machine, measure_rounds

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PEER = "sb3"
ARMS: dict[str, list[str]] = {
    "PPO": ["ppo"],
    "PPO-DICE, K = 5, `shared` (default)": ["ppo-dice", json.dumps({"dice": {"discriminator_steps": 5}})],
    "PPO-DICE, K = 5, `shared`, no blocks": [
        "ppo-dice",
        json.dumps({"dice": {"discriminator_steps": 5}, "block_length": 1}),
    ],
    "PPO-DICE, K = 5, `own`": [
        "ppo-dice",
        json.dumps({"dice": {"discriminator_steps": 5, "encoder": "own"}}),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure speed on Atari against Stable-Baselines3.")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that everything works")
    quick = parser.parse_args().quick
    install_peers()
    ours = {name: Contestant([sys.executable, HERE / "ours_pixels.py", *arm]) for name, arm in ARMS.items()}
    peer = {PEER: Contestant([PEERS_PYTHON, HERE / "peer_sb3_pixels.py", cores()])}
    measured = {
        "command": "python benchmarks/pixels.py" + (" --quick" if quick else ""),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "load_before": os.getloadavg()[0],
        **measure_rounds(peer | ours, QUICK if quick else FULL),
    }
    name = "pixels-quick" if quick else "pixels"
    (RESULTS / f"{name}.json").write_text(json.dumps(measured, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(markdown(measured))
    print((RESULTS / f"{name}.md").read_text())


def markdown(measured: dict[str, Any]) -> str:
    """Medians over rounds; ratios are medians of the ratios within a round."""
    turns, where = measured["turns"], measured["machine"]
    lines = [
        f"{where['cpu']}, {where['cores']} cores, {measured['date']}; "
        f"load before {measured['load_before']:.1f}; "
        f"medians of {len(turns[PEER])} rounds of 1024 steps, `{measured['command']}`",
        "",
        "| | steps/s | times SB3's PPO | time over our PPO's | collecting | learning | memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, rounds in turns.items():
        seconds = median(rounds, "seconds")
        faster = statistics.median(b["seconds"] / a["seconds"] for a, b in zip(rounds, turns[PEER]))
        slower = statistics.median(a["seconds"] / b["seconds"] for a, b in zip(rounds, turns["PPO"]))
        lines.append(
            f"| {'Stable-Baselines3, PPO' if name == PEER else name} | {1024 / seconds:.0f} | {faster:.2f} | "
            f"{slower:.2f} | {median(rounds, 'collect'):.2f} s | {median(rounds, 'learn'):.2f} s | "
            f"{max(one['memory'] for one in rounds) / 1e9:.2f} GB |"
        )
    return "\n".join(lines) + "\n"


def median(rounds: list[dict[str, float]], part: str) -> float:
    return statistics.median(one[part] for one in rounds)


if __name__ == "__main__":
    main()
