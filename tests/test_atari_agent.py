"""An agent on Atari: what it reports, records and plays again."""

import json

import pytest

from ppo_dice import PPO, load

pytest.importorskip("envpool")

TINY = {
    "n_envs": 2,
    "n_steps": 8,
    "n_minibatches": 1,
    "n_epochs": 1,
    "cnn_filters": (4,),
    "cnn_kernels": (8,),
    "cnn_strides": (8,),
    "cnn_features": 8,
}


def test_an_agent_trains_and_is_evaluated_on_whole_games(tmp_path):
    agent = PPO("Breakout-v5", env_kwargs={"sticky_actions": 0.25}, **TINY)
    agent.learn(32, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["pipeline"]["sticky_actions"] == 0.25
    assert config["pipeline"] == agent.spec.pipeline
    again = load(tmp_path / "run")
    assert again.spec == agent.spec
    played = again.evaluate(1, deterministic=False)
    assert played.lengths[0][0] > 100  # five lives, of which a random player loses one in about 35 steps
    assert played == agent.evaluate(1, deterministic=False)
    assert load(tmp_path / "run", backend="ale").evaluate(1, deterministic=False).lengths[0][0] > 100
