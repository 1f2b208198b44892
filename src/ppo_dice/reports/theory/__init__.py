"""The laboratory's results as pictures and one page, from its file `theory.json` alone.

Every experiment has a module here with the same three functions of its data: `picture`, `sentences`, which
say what to see, and `table`.
"""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

from ppo_dice.errors import UserError
from ppo_dice.reports.theory import (
    accuracy,
    bias,
    episode_ends,
    horizon,
    improvement,
    network,
    sandwich,
    score_function,
)
from ppo_dice.reports.theory.page import Section, page

RESULTS_FILE, PAGE_FILE = "theory.json", "index.html"
SECTIONS: dict[str, ModuleType] = {
    "horizon": horizon,
    "improvement": improvement,
    "sandwich": sandwich,
    "accuracy": accuracy,
    "bias": bias,
    "network": network,
    "episode_ends": episode_ends,
    "score_function": score_function,
}
"""What makes each picture; the order is the page's."""


def build_report(folder: Path) -> Path:
    """Draw a PNG for each experiment in the folder's `theory.json`, and the page that holds them all."""
    content = _read(folder)
    sections = []
    for name, module in SECTIONS.items():
        data, picture = content["experiments"][name], folder / f"{name}.png"
        module.picture(data).savefig(picture, dpi=110)
        sections.append(Section(module.TITLE, picture, module.sentences(data), module.table(data)))
    (folder / PAGE_FILE).write_text(page(sections, content), encoding="utf-8")
    return folder / PAGE_FILE


def summary(folder: Path) -> str:
    """One sentence for each experiment."""
    experiments = _read(folder)["experiments"]
    return "\n".join(f"{name}: {module.sentences(experiments[name])[0]}" for name, module in SECTIONS.items())


def _read(folder: Path) -> dict[str, Any]:
    path = folder / RESULTS_FILE
    if not path.is_file():
        raise UserError(f"There is no {path}; `ppo-dice theory` writes it.")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
