"""The code blocks of these pages, and a way to run them quickly.

    python docs/commands.py README.md docs/quickstart.md

runs every block of these pages, shortened, each page in an empty folder of its own. The tests do the same.

* ```` ```sh ```` blocks are run by bash, and stop at the first command that fails.
* ```` ```python ```` blocks are executed; those of one page share their names. A block whose first line is
  `# file: NAME.py` is written to that file instead.
* Everything else (```` ```console ````, ```` ```text ````, directives) is not run.

One substitution makes them short: see `shorten`.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LIMITS = {"timesteps": 2048, "seeds": 2, "episodes": 2}
"""What `shorten` leaves of environment steps, of seeds and of evaluation episodes."""

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<code>.*?)^ *(?P=ticks)`* *$", re.M | re.S
)
_NUMBERS = (
    ("timesteps", re.compile(r"(--total-timesteps[ =]|\btotal_timesteps ?= ?|\.learn\()(\d[\d_]*)")),
    ("seeds", re.compile(r"(--seeds[ =]|\bseeds ?= ?)(\d[\d_]*)")),
    ("episodes", re.compile(r"(--episodes[ =]|\bepisodes ?= ?)(\d[\d_]*)")),
)
_FILE = re.compile(r"# file: (\S+)\n")


def blocks(path: str | Path) -> list[tuple[str, str]]:
    """Every fenced block of a page in order: the first word after the fence, and the code."""
    return [
        (
            (match["info"].split() or [""])[0],
            re.sub(f"^ {{0,{len(match['indent'])}}}", "", match["code"], flags=re.M),
        )
        for match in _FENCE.finditer(Path(path).read_text(encoding="utf-8"))
    ]


def shorten(code: str) -> str:
    """The same code with fewer steps, seeds and episodes; a number that is small already stays.

    Replaced are the numbers of `--total-timesteps N`, `--seeds N` and `--episodes N`, and of `.learn(N`,
    `total_timesteps=N`, `seeds=N` and `episodes=N`.
    """
    for what, pattern in _NUMBERS:
        code = pattern.sub(lambda match, limit=LIMITS[what]: match[1] + str(min(int(match[2]), limit)), code)
    return code


def file_name(code: str) -> str | None:
    """The file that a Python block is the content of, where it says so in its first line."""
    match = _FILE.match(code)
    return match[1] if match else None


def run(path: str | Path) -> None:
    """Run the blocks of a page, shortened, in the current folder."""
    path = Path(path).resolve()
    sys.path.insert(0, os.getcwd())
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    }
    names = {"__name__": "__main__"}
    for number, (language, code) in enumerate(blocks(path), start=1):
        code = shorten(code)
        if language == "sh":
            subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True, env=environment)
        elif language == "python" and (name := file_name(code)):
            Path(name).write_text(code, encoding="utf-8")
        elif language == "python":
            exec(compile(code, f"{path.name}, block {number}", "exec"), names)


def run_apart(path: str | Path) -> None:
    """Run the blocks of a page in a new process and an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        here, page = str(Path(__file__).parent), str(Path(path).resolve())
        script = "import sys; sys.path.insert(0, sys.argv[1]); import commands; commands.run(sys.argv[2])"
        subprocess.run([sys.executable, "-c", script, here, page], check=True, cwd=folder)


if __name__ == "__main__":
    for page in sys.argv[1:]:
        print(f"== {page}", flush=True)
        run_apart(page)
