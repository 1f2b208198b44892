"""How long a person waits: from typing a command until something has been learnt."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import task

Waits = dict[str, float]


def measure_waits() -> Waits:
    """One short run with an empty compilation cache, the same again with a full one, and the help."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            **{f"cold_{name}": value for name, value in _run(Path(folder), "cold").items()},
            **{f"warm_{name}": value for name, value in _run(Path(folder), "warm").items()},
            "help": _help(),
        }


def _run(folder: Path, name: str) -> Waits:
    """Train for one iteration; the first update is over when its line stands in metrics.jsonl."""
    out = folder / name
    arguments = [task.ENV_ID, "--preset", "published", "--total-timesteps", str(task.N_STEPS)]
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    began = time.perf_counter()
    process = subprocess.Popen(
        [_program(), "train", *arguments, "--out", str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics = out / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.01)
    first_update = time.perf_counter() - began
    if process.wait() != 0:
        raise RuntimeError(f"ppo-dice train failed with exit status {process.returncode}")
    whole = time.perf_counter() - began
    compiling = json.loads(metrics.read_text().splitlines()[0])["time/compile_seconds"]
    return {"first_update": first_update, "compile": compiling, "whole": whole}


def _help() -> float:
    began = time.perf_counter()
    subprocess.run([_program(), "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _program() -> str:
    return str(Path(sys.executable).with_name("ppo-dice"))
