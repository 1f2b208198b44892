"""The command line as a person meets it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ppo_dice import cli
from ppo_dice.commands import parse_train
from ppo_dice.training import PAPER_RECENT

PROGRAM = Path(sys.executable).with_name("ppo-dice")
TINY = ["--n-steps", "64", "--n-minibatches", "2", "--n-epochs", "1", "--hidden-sizes", "8"]


def ppo_dice(*arguments, cwd):
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of two seeds, from the real command."""
    folder = tmp_path_factory.mktemp("run")
    arguments = [
        "CartPole-v1",
        "--seed",
        3,
        "--seeds",
        2,
        "--total-timesteps",
        "1_000",
        "--out",
        "run",
        *TINY,
    ]
    result = ppo_dice("train", *arguments, "--gamma", 0.9, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result, folder / "run"


def test_training_says_what_it_did_in_plain_lines(finished):
    result, _ = finished
    assert "ppo-dice on CartPole-v1 (EnvPool" in result.stdout
    assert "seeds 3–4 → run" in result.stdout
    assert "mean over seeds: " in result.stdout
    assert "step 1,024 of 1,024   return " in result.stderr
    assert "steps/s" in result.stderr
    assert "\x1b[" not in result.stdout + result.stderr  # no colours, no bar: this is not a terminal


def test_a_run_folder_holds_everything(finished):
    _, run = finished
    names = {path.name for path in run.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "episodes.jsonl",
        "model.safetensors",
        "result.json",
        "learning_curve.png",
        "tensorboard",
    }
    config = json.loads((run / "config.json").read_text())
    assert config["format_version"] == 1
    assert config["config"]["gamma"] == 0.9
    assert config["config"]["n_envs"] == 8  # from CartPole's preset
    assert config["config"]["hidden_sizes"] == [8]
    assert config["run"]["total_timesteps"] == 1000
    assert config["seeds"] == [3, 4]
    assert config["backend"] == "envpool"
    assert "EnvPool" in config["engine"]
    assert config["versions"]["jax"]
    assert config["device"]["jax_backend"] == "cpu"
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_are_one_line_per_iteration_and_seed(finished):
    _, run = finished
    lines = rows(run / "metrics.jsonl")
    assert [(line["iteration"], line["seed"], line["env_steps"]) for line in lines] == [
        (i, s, 512 * i) for i in (1, 2) for s in (3, 4)
    ]
    expected = {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "rollout/last_10_return",
        "time/fps",
        "time/env_seconds",
        "time/act_seconds",
        "time/learn_seconds",
        "time/compile_seconds",
        "train/learning_rate",
        "train/clip_range",
        "train/approx_kl",
        "train/clip_fraction",
        "train/explained_variance",
        "train/entropy_loss",
        "train/value_loss",
        "train/policy_gradient_loss",
        "train/policy_grad_norm",
        "train/value_grad_norm",
        "policy/kl_old_new",
        "policy/kl_new_old",
        "policy/max_ratio",
        "policy/entropy",
    }
    assert all(expected <= set(line) for line in lines)
    assert lines[0]["train/learning_rate"] == pytest.approx(1e-3)
    assert lines[-1]["train/learning_rate"] == pytest.approx(5e-4)


def test_the_final_return_is_the_mean_of_the_last_ten_episodes(finished):
    _, run = finished
    result = json.loads((run / "result.json").read_text())
    episodes = rows(run / "episodes.jsonl")
    for seed in (3, 4):
        last = [episode["return"] for episode in episodes if episode["seed"] == seed][-PAPER_RECENT:]
        assert result["final_return"][str(seed)] == pytest.approx(np.mean(last))
    assert result["complete"] is True
    assert result["env_steps"] == 1024
    spread = np.std(list(result["final_return"].values()), ddof=1) / np.sqrt(2)
    assert result["standard_error"] == pytest.approx(spread)
    assert all(0 < episode["env_steps"] <= 1024 for episode in episodes)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_the_events(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, run = finished
    events = EventAccumulator(str(run / "tensorboard" / "seed_4"))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("train/value_loss")]
    expected = [
        (r["env_steps"], r["train/value_loss"]) for r in rows(run / "metrics.jsonl") if r["seed"] == 4
    ]
    np.testing.assert_allclose(written, expected, rtol=1e-6)


def test_evaluate(finished, capsys):
    _, run = finished
    assert cli.run(["evaluate", str(run), "--episodes", "3", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {seed: len(values) for seed, values in summary["returns"].items()} == {"3": 3, "4": 3}
    assert summary["mean"] == pytest.approx(np.mean(list(summary["mean_by_seed"].values())))
    assert cli.run(["evaluate", str(run / "model.safetensors"), "--episodes", "2", "--stochastic"]) == 0
    text = capsys.readouterr().out
    assert "seed 3: " in text
    assert "± " in text
    assert "sampled actions" in text
    assert cli.run(["evaluate", str(run), "--episodes", "1", "--seed", "4", "--backend", "gymnasium"]) == 0


def test_nothing_is_overwritten(finished, capsys):
    _, run = finished
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert cli.run(["train", "CartPole-v1", "--out", str(run)]) == 2
    assert f"{run} already holds a run" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*")}


@pytest.mark.parametrize("name", ["model.safetensors", "metrics.jsonl", "tensorboard", "result.json"])
def test_a_file_that_a_run_would_write_is_not_overwritten(name, tmp_path, capsys):
    (tmp_path / name).write_text("precious")
    assert cli.run(["train", "CartPole-v1", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} already holds {name}, which a run would write" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "precious")]


MISTAKES = {
    "Hoper-v5": "There is no environment 'Hoper-v5'; did you mean Hopper-v5",
    "--seed 3 CartPole-v1": "The environment comes first: ppo-dice train ENV",
    "CartPole-v1 --algo pp": "There is no algorithm 'pp'; known are: ppo, ppo-dice.",
    "CartPole-v1 --preset best": "There is no preset 'best' for ppo-dice; known are: default, paper",
    "CartPole-v1 --dice.coefficient -1": "dice.coefficient must be a finite number ≥ 0, but is -1.0.",
    "CartPole-v1 --dice.divergence what": "There is no divergence 'what'; known are: kl, reverse_kl",
    "CartPole-v1 --dice.divergence alpha --dice.alpha-order 1": "alpha must be a number other than 0",
    "CartPole-v1 --seeds 0": "seeds must be at least 1, but is 0.",
    "CartPole-v1 --seeds 100000000": "8 environments for each of 100,000,000 seeds are too many",
    "CartPole-v1 --seed 2147483647 --seeds 2": "seed + seeds must be at most 2³¹, but is 2147483649.",
    "CartPole-v1 --n-steps 100000000 --n-envs 100000 --n-minibatches 1": "lower n_steps, n_envs or seeds.",
    "CartPole-v1 --total-timesteps -5": "total_timesteps must be at least 1, but is -5.",
    "CartPole-v1 --n-minibatches 7": "n_minibatches must be a divisor of n_envs · n_steps = 256, but is 7.",
    "CartPole-v1 --gamma 1.5": "gamma must be in [0, 1), but is 1.5.",
    "CartPole-v1 --eval-every 0": "eval_every must be at least 1, or None, but is 0.",
    "CartPole-v1 --eval-every 5 --eval-episodes 0": "eval_episodes must be at least 1, but is 0.",
    "CartPole-v1 --stop-at-return 5": "stop_at_return looks at evaluations; say how often to make them",
    "CartPole-v1 --env-kwargs 5": "--env-kwargs must be a JSON object",
    "CartPole-v1 --env-kwargs {": "--env-kwargs must be a JSON object",
    'CartPole-v1 --env-kwargs {"colour":1} --backend gymnasium': "colour",
    "CartPole-v1 --backend nowhere": "nowhere",
    "Hopper-v5 --out /proc/run": "/proc/run cannot be written",
    f"CartPole-v1 --out {'long' * 100}": "cannot be a run's folder: File name too long.",
    "no_such_module:Mine-v0": "no_such_module",
    "CartPole-v1 --sticky-actions 0.25": "--sticky-actions is for Atari's games, and CartPole-v1 is none.",
    "Pong-v5 --sticky-actions 2": "sticky_actions must be in [0, 1), but is 2.0.",
    'Pong-v5 --env-kwargs {"frameskip":2}': "no setting 'frameskip'; did you mean frame_skip?",
    "Hopper-v5 --backend ale": "The backend ale runs Atari's games only, by their id, and not Hopper-v5.",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_gets_one_sentence_and_no_work(arguments, capsys, elsewhere):
    assert cli.run(["train", *arguments.split(" ")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert MISTAKES[arguments] in error
    assert error.count("\n") == 1
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "nowhere"], "There is no run's folder and no model file nowhere."),
        (["evaluate", "."], "is not a run's folder: it holds no model.safetensors"),
        (["envs", "zzzz"], "No environment has 'zzzz' in its name"),
        (["fly"], "There is no command 'fly'; known are: train, tune, evaluate"),
    ],
)
def test_mistakes_of_other_commands(arguments, message, capsys, elsewhere):
    assert cli.run(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_model_file_that_is_torn_is_refused(finished, tmp_path, capsys):
    _, run = finished
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes((run / "model.safetensors").read_bytes()[:-100])
    assert cli.run(["evaluate", str(torn)]) == 2
    assert "is not a whole model file" in capsys.readouterr().err


def test_unknown_options_and_wrong_types_are_refused_without_a_traceback(tmp_path):
    for wrong in (["--learning-rat", "1"], ["--n-steps", "many"], ["--surrogate", "clip"]):
        result = ppo_dice("train", "CartPole-v1", *wrong, cwd=tmp_path)
        assert result.returncode == 2
        assert "Traceback" not in result.stdout + result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_is_saved_and_usable(tmp_path):
    command = [PROGRAM, "train", "CartPole-v1", "--total-timesteps", "100_000_000", "--out", "run", *TINY]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=tmp_path, **pipes)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size > 5_000):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == cli.INTERRUPTED, err
    assert "everything up to the last whole iteration is saved" in err
    assert "Traceback" not in err
    assert "mean over seeds" in out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["complete"] is False
    assert result["env_steps"] == rows(metrics)[-1]["env_steps"]
    assert ppo_dice("evaluate", "run", "--episodes", 2, cwd=tmp_path).returncode == 0


INTERRUPTED_IMPORT = """
import atexit, signal, sys

class Finder:
    def find_spec(name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder)
atexit.register(print, "farewell")
from ppo_dice import cli
{command}
"""


def interrupt_import(module, command, cwd):
    script = INTERRUPTED_IMPORT.format(module=module, command=command)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("module", ["tyro", "jaxlib._jax", "envpool"])
def test_an_interrupt_while_starting_is_no_traceback(module, tmp_path):
    result = interrupt_import(module, "cli.main(['train', 'CartPole-v1'])", tmp_path)
    assert (result.returncode, result.stderr) == (cli.INTERRUPTED, "interrupted\n")
    assert "farewell" not in result.stdout  # nothing is taken apart below what may still run
    assert list(tmp_path.iterdir()) == []


def test_an_extension_is_not_interrupted_while_it_starts(tmp_path):
    command = "print(cli.run(['train', 'CartPole-v1']), 'ppo_dice.agent' in sys.modules)"
    assert interrupt_import("jaxlib._jax", command, tmp_path).stdout == "130 True\nfarewell\n"


def test_an_environment_of_ones_own_by_module_and_keywords(tmp_path):
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium, numpy as np\n"
        "from gymnasium.spaces import Box, Discrete\n"
        "class Line(gymnasium.Env):\n"
        "    def __init__(self, size):\n"
        "        self.size, self.observation_space = size, Box(-1, 1, (1,))\n"
        "        self.action_space = Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        self.place = 0\n"
        "        return np.zeros(1, np.float32), {}\n"
        "    def step(self, action):\n"
        "        self.place += 1 if action else -1\n"
        "        done = abs(self.place) == self.size\n"
        "        obs = np.full(1, self.place / self.size, np.float32)\n"
        "        return obs, float(self.place > 0), done, False, {}\n"
        "gymnasium.register('Line-v0', Line, max_episode_steps=50)\n"
    )
    arguments = ["my_envs:Line-v0", "--env-kwargs", '{"size": 3}', "--total-timesteps", 256, "--out", "run"]
    result = ppo_dice("train", *arguments, *TINY, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env_kwargs"] == {"size": 3}
    assert ppo_dice("evaluate", "run", "--episodes", 2, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("coefficient", ["adaptive", "target", "0.25"])
def test_the_coefficient_is_a_number_or_a_word(coefficient):
    options = parse_train(["Hopper-v5", "--dice.coefficient", coefficient])
    assert str(options.config.dice.coefficient) == coefficient
    assert options.algo == "ppo-dice"


def test_presets_info_envs_and_help(capsys):
    for arguments in (["--help"], ["--version"], ["presets"], ["presets", "CartPole-v1"], ["info"]):
        assert cli.run(arguments) == 0
    text = capsys.readouterr().out
    for word in ("train ENV", "published", "n_minibatches", "envpool", "jax_backend"):
        assert word in text
    assert cli.run(["envs", "hopper"]) == 0
    assert "Hopper-v5 " in capsys.readouterr().out
    assert cli.run([]) == 2


def test_help_names_every_setting_and_imports_nothing_heavy(tmp_path):
    script = "import sys; from ppo_dice.cli import run\n"
    script += "try: run(sys.argv[1:])\nfinally: print(sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", script, "train", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    for option in (
        "--total-timesteps",
        "--n-envs",
        "--seeds",
        "--env-kwargs",
        "--kl-penalty",
        "--backend",
        "--dice.form",
    ):
        assert option in result.stdout
    loaded = result.stdout.splitlines()[-1]
    for heavy in ("'jax'", "'envpool'", "'gymnasium'", "'matplotlib'"):
        assert heavy not in loaded
