"""Sinks: Weights & Biases itself without its network, one of a third party, and those that fail."""

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppo_dice import PPO, cli
from ppo_dice.errors import UserError
from ppo_dice.tracking import Sink, WandB

PROGRAM = Path(sys.executable).with_name("ppo-dice")
TINY = {"n_envs": 4, "n_steps": 16, "n_minibatches": 2, "n_epochs": 1, "hidden_sizes": (8,)}


def cartpole(**settings):
    return PPO("CartPole-v1", **TINY, **settings)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


BLOCK, HEAD = 32768, struct.Struct("<IHB")


def wandb_records(path):
    """What is in an offline W&B file: a log in blocks, each piece with checksum, length and kind."""
    from wandb.proto import wandb_internal_pb2

    data, place, whole = path.read_bytes(), 7, b""
    while place + HEAD.size <= len(data):
        if (left := BLOCK - place % BLOCK) < HEAD.size:
            place += left
            continue
        _, length, kind = HEAD.unpack_from(data, place)
        place += HEAD.size + length
        whole += data[place - length : place]
        if kind in (1, 4):  # all of a record, or the last piece of one
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def finished_records(path):
    """All of them: a process of W&B's own writes the file, and may write still."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        records = list(wandb_records(path))
        if any(record.HasField("exit") for record in records):
            return records
        time.sleep(0.05)
    return pytest.fail("W&B has not finished its file")


def values(items):
    return {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}


def test_wandb_has_the_scalars_the_config_and_the_picture(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "from-the-environment")
    cartpole(seed=3, seeds=2).learn(128, out=tmp_path / "run", track=WandB(mode="offline", tags=["mine"]))
    found = {}
    for path in (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"):
        records = finished_records(path)
        (run,) = (record.run for record in records if record.WhichOneof("record_type") == "run")
        history = [values(record.history.item) for record in records if record.HasField("history")]
        summary = {}
        for record in records:
            summary |= values(record.summary.update)
        found[values(run.config.update)["seed"]] = (run, history, summary)
    assert set(found) == {3, 4}

    result = json.loads((tmp_path / "run" / "result.json").read_text())
    for seed, (run, history, summary) in found.items():
        config = values(run.config.update)
        assert (run.project, list(run.tags)) == ("from-the-environment", ["mine"])
        assert (run.run_group, run.display_name) == (
            "CartPole-v1-ppo-run",
            f"CartPole-v1-ppo-run-seed_{seed}",
        )
        assert config["config"]["n_steps"] == 16
        assert config["run"]["total_timesteps"] == 128
        expected = [row for row in rows(tmp_path / "run" / "metrics.jsonl") if row["seed"] == seed]
        scalars = [line for line in history if "learning_curve" not in line]
        assert [line["env_steps"] for line in scalars] == [64, 128]
        for line, row in zip(scalars, expected, strict=True):
            tags = {tag for tag in row if "/" in tag}
            assert {tag: line[tag] for tag in tags} == {tag: row[tag] for tag in tags}
        assert summary["complete"] is True
        assert summary["final_return"] == result["final_return"][str(seed)]
    pictures = [len([line for line in found[seed][1] if "learning_curve" in line]) for seed in (3, 4)]
    assert pictures == [1, 0]


def test_without_a_login_there_is_a_sentence_and_no_run(tmp_path):
    nobody = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    nobody |= {"HOME": str(tmp_path / "home"), "NETRC": str(tmp_path / "netrc")}
    arguments = ["train", "CartPole-v1", "--total-timesteps", "100", "--track", "--out", "run"]
    (tmp_path / "here").mkdir()
    result = subprocess.run(
        [PROGRAM, *arguments],
        cwd=tmp_path / "here",
        env=nobody,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "error: Weights & Biases cannot begin: No API key configured" in result.stderr
    assert "Traceback" not in result.stderr
    assert list((tmp_path / "here").iterdir()) == []


def test_without_the_package_there_is_a_sentence_that_says_how_to_get_it(elsewhere, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as Python marks what is not there
    assert cli.run(["train", "CartPole-v1", "--track"]) == 2
    assert capsys.readouterr().err == (
        "error: Tracking with Weights & Biases needs its package: pip install wandb\n"
    )
    monkeypatch.delitem(sys.modules, "wandb")
    monkeypatch.setattr(sys, "path", [str(elsewhere)])
    (elsewhere / "wandb").mkdir()  # what W&B leaves in a folder is no package
    with pytest.raises(UserError, match="pip install wandb"):
        WandB()


class Notebook:
    """A sink of a third party."""

    def __init__(self, fails_in=""):
        self.pages, self.fails_in = [], fails_in

    def _note(self, what, *content):
        if what == self.fails_in:
            raise ConnectionError("nobody answers")
        self.pages.append((what, *content))

    def begin(self, folder, config):
        self._note("begin", folder, config["seeds"], config["callbacks"])

    def scalars(self, values, env_steps, seed):
        self._note("scalars", seed, env_steps, dict(values))

    def image(self, tag, file, env_steps, seed):
        self._note("image", tag, file.exists(), env_steps, seed)

    def video(self, tag, file, env_steps, seed):
        self._note("video", tag, file, env_steps, seed)

    def end(self, result):
        self._note("end", result["complete"])


def test_a_sink_of_a_third_party_gets_everything_in_order(tmp_path):
    film, picture = tmp_path / "film.mp4", tmp_path / "picture.png"

    def show(training):
        if training.iteration == 1:
            training.record("mine/steps", float(training.env_steps))
            training.show_video("film", film, seed=0)
            training.show_image("picture", picture)

    show.__qualname__ = "show"
    notebook, other = Notebook(), Notebook()
    assert isinstance(notebook, Sink)
    run = tmp_path / "run"
    agent = cartpole()
    from matplotlib.figure import Figure

    Figure().savefig(picture)
    agent.learn(128, show, out=run, track=[notebook, other])
    metrics = [{tag: v for tag, v in row.items() if "/" in tag} for row in rows(run / "metrics.jsonl")]
    assert metrics[0]["mine/steps"] == 64
    assert (
        notebook.pages
        == other.pages
        == [
            ("begin", run, [0], ["show"]),
            ("video", "film", film, 64, 0),
            ("image", "picture", True, 64, None),
            ("scalars", 0, 64, metrics[0]),
            ("scalars", 0, 128, metrics[1]),
            ("image", "learning_curve", True, 128, None),
            ("end", True),
        ]
    )


@pytest.mark.parametrize("what", ["scalars", "image", "end"])
def test_a_sink_that_fails_is_left_out_and_the_run_goes_on(what, tmp_path):
    broken, whole = Notebook(fails_in=what), Notebook()
    with pytest.warns(RuntimeWarning, match="Notebook failed and is left out .* ConnectionError: nobody"):
        cartpole().learn(128, out=tmp_path / "run", track=[broken, whole])
    assert [page[0] for page in whole.pages] == ["begin", "scalars", "scalars", "image", "end"]
    kept = {"scalars": ["begin"], "image": ["begin", "scalars", "scalars"]}
    assert [page[0] for page in broken.pages] == kept.get(what, ["begin", "scalars", "scalars", "image"])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["complete"] is True


def test_a_sink_that_cannot_begin_leaves_no_run_behind(tmp_path):
    first = Notebook()
    first.end = lambda result: first.pages.append(("end", result))
    with pytest.raises(ConnectionError):
        cartpole().learn(64, out=tmp_path / "run", track=[first, Notebook(fails_in="begin")])
    assert [page[0] for page in first.pages] == ["begin", "end"]
    assert first.pages[-1] == ("end", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: cartpole().learn(64, track=Notebook()), "recorded in a folder too; name it with out="),
        (lambda: cartpole().learn(64, track=[Notebook]), "track must be True, a sink or a list of sinks"),
    ],
)
def test_a_mistake_gets_a_sentence(call, sentence):
    with pytest.raises(UserError) as caught:
        call()
    assert sentence in str(caught.value)
