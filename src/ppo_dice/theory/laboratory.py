"""Run every experiment and write what came out."""

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppo_dice.checkpoint import write_atomically
from ppo_dice.config import FORMAT_VERSION
from ppo_dice.errors import UserError
from ppo_dice.run_folder import device, versions
from ppo_dice.theory.accuracy import accuracy
from ppo_dice.theory.bias import bias
from ppo_dice.theory.episode_ends import episode_ends
from ppo_dice.theory.horizon import horizon
from ppo_dice.theory.improvement import improvement
from ppo_dice.theory.network import network
from ppo_dice.theory.sandwich import sandwich_ends
from ppo_dice.theory.score_function import score_function

RESULTS_FILE = "theory.json"

Experiment = Callable[[], dict[str, Any]]
EXPERIMENTS: Mapping[str, Experiment] = {
    "horizon": horizon,
    "improvement": improvement,
    "sandwich": sandwich_ends,
    "accuracy": accuracy,
    "bias": bias,
    "network": network,
    "episode_ends": episode_ends,
    "score_function": score_function,
}
"""By name, in the order in which the page tells the story."""


def run(
    out: Path,
    progress: Callable[[str], None] = print,
    experiments: Mapping[str, Experiment] = EXPERIMENTS,
) -> Path:
    """Do every experiment and write `theory.json`, whole or not at all."""
    check_free(out)
    results, seconds = {}, {}
    for number, (name, experiment) in enumerate(experiments.items(), start=1):
        progress(f"{number} of {len(experiments)}  {name}")
        began = time.perf_counter()
        results[name] = experiment()
        seconds[name] = round(time.perf_counter() - began, 2)
    content = {
        "format_version": FORMAT_VERSION,
        "versions": versions(),
        "device": device(),
        "seconds": seconds,
        "experiments": results,
    }
    text = json.dumps(_rounded(content), allow_nan=False) + "\n"
    write_atomically(out / RESULTS_FILE, text.encode())
    return out / RESULTS_FILE


def check_free(out: Path) -> None:
    """Make the folder, and refuse one that has results already or cannot be written."""
    if (out / RESULTS_FILE).exists():
        raise UserError(f"{out} already holds a {RESULTS_FILE}; choose another folder with --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(dir=out).cleanup()
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from None


def _rounded(value: Any) -> Any:
    """Six digits of every number: what a picture and a table need."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
