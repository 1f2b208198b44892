"""Measure speed against our peers: `python benchmarks/run.py [--quick]` with the Python that has ppo-dice.

Every contestant is a process that stays warm; a round gives each of them one turn, one after the other, so
that whatever slows the machine down slows all of them down. Results go to benchmarks/results/.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import task
from command_line import measure_waits
from peers import PYTHON as PEERS_PYTHON
from peers import install_peers
from report import markdown

HERE = Path(__file__).parent
RESULTS = HERE / "results"


@dataclass(frozen=True)
class Repetitions:
    """How often everything is done."""

    warm_up: int
    rounds: int
    waits: int


# Warm means that our pools have found out, in six iterations, where their threads run best.
FULL, QUICK = Repetitions(warm_up=7, rounds=9, waits=3), Repetitions(warm_up=1, rounds=2, waits=1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure speed against Stable-Baselines3, SBX and EnvPool.")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that everything works")
    quick = parser.parse_args().quick
    repetitions = QUICK if quick else FULL
    install_peers()
    measured = {
        "command": "python benchmarks/run.py" + (" --quick" if quick else ""),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        # Of the last minute, and before our own work: other work on the machine spoils the numbers.
        "load_before": os.getloadavg()[0],
        "waits": [measure_waits() for _ in range(repetitions.waits)],
        **measure_rounds(contestants(), repetitions),
    }
    # A smoke test must not overwrite a measurement.
    name = "speed-quick" if quick else "speed"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(measured, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(markdown(measured))
    print((RESULTS / f"{name}.md").read_text())


class Contestant:
    """One or several processes that do an iteration when they are told to."""

    def __init__(self, command: Sequence[Any], processes: int = 1) -> None:
        self._processes = [
            subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(processes)
        ]

    def versions(self) -> dict[str, str]:
        """What it runs on, once it has started."""
        answers = [self._answer(process) for process in self._processes]
        return answers[0]

    def turn(self) -> dict[str, float]:
        """Let all of its processes do an iteration at the same time: their steps add up."""
        for process in self._processes:
            print("go", file=process.stdin, flush=True)
        answers = [self._answer(process) for process in self._processes]
        return {
            name: (sum if name == "steps" else max)(answer[name] for answer in answers) for name in answers[0]
        }

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.stdin.close()
            process.wait()

    def _answer(self, process: subprocess.Popen) -> Any:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(process.args)} ended with exit status {process.wait()}")
        return json.loads(line)


def contestants() -> dict[str, Contestant]:
    sb3 = [PEERS_PYTHON, HERE / "peer_sb3.py", "--library"]
    ours = [sys.executable, HERE / "ours.py", "--seeds"]
    envpool = [sys.executable, HERE / "bare_envpool.py", "--copies", task.N_SEEDS, "--threads"]
    return {
        **{f"sb3_{n}_threads": Contestant([*sb3, "stable_baselines3", "--threads", n]) for n in (1, 2)},
        "sb3_every_core": Contestant([*sb3, "stable_baselines3", "--threads", 1], processes=cores()),
        "sbx": Contestant([*sb3, "sbx", "--threads", 1]),
        "ours_1": Contestant([*ours, 1]),
        "ours_1_gymnasium": Contestant([*ours, 1, "--backend", "gymnasium"]),
        f"ours_{task.N_SEEDS}": Contestant([*ours, task.N_SEEDS]),
        **{
            f"dice_{form}_k{steps}_{n}": Contestant([*ours, n, "--dice", json.dumps(settings(form, steps))])
            for form, steps, n in DICE
        },
        **{f"envpool_{n}_threads": Contestant([*envpool, n]) for n in sorted({1, cores(), task.N_SEEDS})},
    }


DICE = [
    *((form, steps, 1) for form in ("difference", "paper") for steps in (1, 5)),
    *(("difference", steps, task.N_SEEDS) for steps in (1, 5)),
]
"""PPO-DICE by the form of its objective, by its discriminator steps and by the number of seeds."""


def settings(form: str, steps: int) -> dict[str, Any]:
    """The default but for its steps, or the form, single sampled actions and lack of checks of the paper."""
    as_printed = {"known_ratio": False, "action_samples": 1, "certificate": "off"} if form == "paper" else {}
    return {"form": form, "discriminator_steps": steps, **as_printed}


def measure_rounds(taking_part: dict[str, Contestant], repetitions: Repetitions) -> dict[str, Any]:
    try:
        versions = {name: contestant.versions() for name, contestant in taking_part.items()}
        warm_up = play(taking_part, repetitions.warm_up, "warm-up")
        turns = play(taking_part, repetitions.rounds, "round")
    finally:
        for contestant in taking_part.values():
            contestant.close()
    return {"versions": versions, "warm_up": warm_up, "turns": turns}


def play(taking_part: dict[str, Contestant], rounds: int, title: str) -> dict[str, list[dict[str, float]]]:
    """A B C, A B C, …: the numbers of every turn, by contestant."""
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in taking_part}
    for number in range(rounds):
        print(f"{title} {number + 1} of {rounds}", file=sys.stderr)
        for name, contestant in taking_part.items():
            turns[name].append(contestant.turn())
    return turns


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
