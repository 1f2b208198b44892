import io
import json
import re

import numpy as np
import pytest

from ppo_dice import progress
from ppo_dice.progress import mean_return, progress_display
from ppo_dice.reports.learning_curve import plot_learning_curve, read_curve
from ppo_dice.rollout import Episode
from ppo_dice.training import Iteration, Population, ReturnWindow


def iteration(env_steps, *returns):
    metrics = [{"time/fps": 1234.0} | ({} if r is None else {"rollout/last_10_return": r}) for r in returns]
    return Iteration(Population(tuple(range(len(returns))), None, 1), env_steps, 100, metrics, [])


def evaluated(env_steps, *returns):
    shown = iteration(env_steps, *[1.0] * len(returns))
    for metrics, value in zip(shown.metrics, returns):
        metrics["eval/mean_reward"] = value
    return shown


def test_lines_give_return_speed_and_time_left(capsys, monkeypatch):
    clock = iter([0.0, 20.0, 21.0, 31.0, 32.0])  # created; first iteration compiles for 20 s
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    with progress_display(1000, enabled=True) as display:
        display.show(iteration(100, None))
        display.show(iteration(200, 1.0))  # within ten seconds: no line
        display.show(iteration(600, 1.0, 2.0))
        display.show(iteration(1000, 3.0))
    first, second, last = capsys.readouterr().err.splitlines()
    assert first == "step 100 of 1,000   return –   1,234 steps/s"
    assert second == "step 600 of 1,000   return 1.5   1,234 steps/s   9 s left"  # 500 steps took 11 s
    assert last.startswith("step 1,000 of 1,000   return 3.0")


def test_an_evaluation_is_shown_until_the_next(capsys, monkeypatch):
    clock = iter([0.0, 20.0, 21.0, 31.0])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    with progress_display(1000, enabled=True) as display:
        display.show(iteration(100, 1.0, 1.0))
        display.show(evaluated(200, 20.0, 30.0))  # no line is due, but the next one tells
        display.show(iteration(600, 1.0, 2.0))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "step 100 of 1,000   return 1.0   1,234 steps/s"
    assert second.startswith("step 600 of 1,000   return 1.5   evaluation 25.0   1,234 steps/s")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal_of(columns, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = terminal_of(160, monkeypatch)
    with progress_display(1000, enabled=True) as display:
        display.show(iteration(500, 7.25))
        assert "evaluation" not in terminal.getvalue()
        display.show(evaluated(600, 8.5))
    text = terminal.getvalue()
    for part in ("training", "600/1000", "return 1.0 evaluation 8.5", "1,234 steps/s", "left"):
        assert part in text


def test_a_narrow_terminal_shortens_the_bar_and_no_number(monkeypatch):
    terminal = terminal_of(80, monkeypatch)
    with progress_display(1_000_000, enabled=True) as display:
        display.show(iteration(500_000, 1234.5))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert " 500000/1000000 return 1234.5 1,234 steps/s 0:00:00 left -:--:--" in text


def test_silence(capsys):
    with progress_display(10, enabled=False) as display:
        display.show(iteration(10, 1.0))
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_the_mean_return_waits_for_every_seed():
    assert mean_return(iteration(1, 2.0, None)) is None
    assert mean_return(iteration(1, 2.0, 4.0)) == 3


def test_the_window_keeps_a_hundred_episodes_and_the_paper_ten():
    window = ReturnWindow()
    assert window.metrics() == {}
    for k in range(150):
        window.append(Episode(0, 0, 0, float(k), 2 * k))
    metrics = window.metrics()
    assert metrics["rollout/ep_rew_mean"] == np.mean(range(50, 150))
    assert metrics["rollout/ep_len_mean"] == 2 * np.mean(range(50, 150))
    assert metrics["rollout/last_10_return"] == np.mean(range(140, 150))


@pytest.mark.parametrize("seeds", [0, 1, 3])
def test_the_curve_is_read_and_drawn(tmp_path, seeds):
    lines = [
        {"env_steps": steps, "seed": seed, **({"rollout/last_10_return": seed + steps} if steps > 1 else {})}
        for steps in (1, 2, 3)
        for seed in range(seeds)
    ]
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    steps, returns = read_curve(file)
    assert list(steps) == ([2, 3] if seeds else [])
    if seeds:
        np.testing.assert_array_equal(returns, [[s + seed for seed in range(seeds)] for s in (2, 3)])
    plot_learning_curve(file, tmp_path / "curve.png", "a title")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
