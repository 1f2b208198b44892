"""Every command and every snippet of the documentation runs, shortened by one documented substitution."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]

_spec = importlib.util.spec_from_file_location("commands", ROOT / "docs" / "commands.py")
commands = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(commands)


def runnable(page):
    return any(language in ("sh", "python") for language, _ in commands.blocks(ROOT / page))


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)])
def test_every_block_of_the_page_runs(page):
    commands.run_apart(ROOT / page)  # raises where a block fails


def test_the_substitution_cuts_what_is_long_and_keeps_what_is_short():
    pairs = {
        "train X --seeds 10 --total-timesteps 1_000_000": "train X --seeds 2 --total-timesteps 2048",
        "agent.learn(500)": "agent.learn(500)",
        "PPO(env, seeds=10).evaluate(episodes=20)": "PPO(env, seeds=2).evaluate(episodes=2)",
    }
    for long, short in pairs.items():
        assert commands.shorten(long) == short


def test_the_pages_build_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "docs", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("PPO", ({}, {"kl_penalty": "adaptive", "target_kl": 0.1})),
        ("PPODice", ({}, {"dice": {"coefficient": "target", "certificate": "off"}})),
    ],
)
def test_every_metric_is_explained_on_the_page_of_its_algorithm(algorithm, settings, tmp_path):
    import ppo_dice

    metrics = set()
    for number, chosen in enumerate(settings):
        run = tmp_path / str(number)
        getattr(ppo_dice, algorithm)("CartPole-v1", **chosen).learn(256 * 3, out=run)
        metrics |= set(re.findall(r'"(\w+/\w+)":', (run / "metrics.jsonl").read_text()))
    ppo = explained_metrics("ppo.md")
    if algorithm == "PPO":
        assert metrics == ppo
    else:  # those it shares with PPO are explained there, and the page says so
        assert metrics - ppo == explained_metrics("ppo_dice.md")
        assert "(ppo.md#logged-metrics)" in (ROOT / "docs" / "algorithms" / "ppo_dice.md").read_text()


def explained_metrics(page):
    """The tags in the first column of a page's tables."""
    text = (ROOT / "docs" / "algorithms" / page).read_text()
    return set(re.findall(r"^\| `((?:rollout|train|policy|time|dice)/\w+)` \|", text, re.M))


def test_every_setting_stands_on_the_page_for_those_who_come_from_elsewhere():
    from ppo_dice import PPODiceConfig
    from ppo_dice.settings import settings_by_option

    page = (ROOT / "docs" / "howto" / "from_stable_baselines3.md").read_text()
    tables = page[page.index("(names-elsewhere)=") :]
    assert [name for name in settings_by_option(PPODiceConfig()) if f"`{name}`" not in tables] == []


def test_the_default_search_is_what_the_page_says():
    from ppo_dice.search_space import PPO_DICE_SEARCH

    page = (ROOT / "docs" / "howto" / "search.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| (?:both|PPO-DICE) \|$", page, re.M))
    said = {name: row.replace(", logarithmic", ":log").replace(" to ", ":") for name, row in rows.items()}
    assert {name: row.replace(", ", ",") for name, row in said.items()} == PPO_DICE_SEARCH
