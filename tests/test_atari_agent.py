"""An agent on Atari, from the command: what is printed, recorded and played again."""

import json

import pytest

from ppo_dice import cli, load

pytest.importorskip("envpool")

TINY = """
--algo ppo --n-envs 2 --n-steps 8 --n-minibatches 1 --n-epochs 1
--cnn-filters 4 --cnn-kernels 8 --cnn-strides 8 --cnn-features 8
"""


def test_a_run_tells_its_pipeline_and_its_model_is_evaluated_on_whole_games(tmp_path, capsys):
    run = tmp_path / "run"
    arguments = ["train", "Breakout-v5", "--sticky-actions", "0.25", *TINY.split()]
    assert cli.run([*arguments, "--total-timesteps", "32", "--out", str(run)]) == 0
    assert "\npipeline: sticky actions 0.25, frame skip 4 " in capsys.readouterr().out
    config = json.loads((run / "config.json").read_text())
    assert config["env_kwargs"] == {"sticky_actions": 0.25}
    agent = load(run)
    assert agent.spec.pipeline == config["pipeline"]
    played = agent.evaluate(1, deterministic=False)
    assert played.lengths[0][0] > 100  # five lives, of which a random player loses one in about 35 steps
    elsewhere = load(run, backend="ale").evaluate(1, deterministic=False)
    assert elsewhere.lengths[0][0] > 100
