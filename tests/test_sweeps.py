import dataclasses
import json

import gymnasium
import jax
import numpy as np
import pytest

from ppo_dice import PPO, PPOConfig, PPODice, Sweep, cli, load
from ppo_dice.algorithms import register
from ppo_dice.errors import UserError
from ppo_dice.training import train
from probes import InterruptingCartPole

TINY = {"n_envs": 1, "n_steps": 32, "n_minibatches": 2, "n_epochs": 1, "hidden_sizes": (8,)}


def assert_same_state(ours, single):
    for a, b in zip(
        jax.tree.leaves(ours.population.state), jax.tree.leaves(single.population.state), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_numbers_make_one_population_of_which_every_value_is_its_single_run_bit_for_bit():
    dice = {"coefficient": [0.1, 5.0], "hidden_sizes": (8,)}
    sweep = Sweep("CartPole-v1", gae_lambda=[0.5, 0.95], dice=dice, seed=3, seeds=2, **TINY).learn(192)
    assert [len(population) for population in sweep.populations] == [4]
    for variant in sweep.variants:
        gae_lambda, coefficient = variant.values["gae_lambda"], variant.values["dice.coefficient"]
        settings = {"gae_lambda": gae_lambda, "dice": {"coefficient": coefficient, "hidden_sizes": (8,)}}
        single = PPODice("CartPole-v1", seed=3, seeds=2, **TINY, **settings).learn(192)
        assert variant.agent.config == single.config
        assert_same_state(variant.agent, single)
        assert variant.agent.final_return == single.final_return
    states = [jax.tree.leaves(variant.agent.population.state) for variant in sweep.variants]
    for k, one in enumerate(states):
        assert all(any((a != b).any() for a, b in zip(one, other)) for other in states[:k])


def test_what_fixes_the_compiled_code_makes_populations_one_after_another():
    settings = TINY | {"n_epochs": [1, 2], "max_grad_norm": [0.5, 0.1, None]}
    sweep = Sweep("CartPole-v1", algo="ppo", **settings)
    names = [[variant.name for variant in population] for population in sweep.populations]
    assert names == [
        ["n_epochs=1,max_grad_norm=0.5", "n_epochs=1,max_grad_norm=0.1"],
        ["n_epochs=1,max_grad_norm=None"],
        ["n_epochs=2,max_grad_norm=0.5", "n_epochs=2,max_grad_norm=0.1"],
        ["n_epochs=2,max_grad_norm=None"],
    ]
    sweep = Sweep("CartPole-v1", algo="ppo", **TINY | {"n_epochs": [1, 2]}).learn(64)
    for n_epochs in (1, 2):
        single = PPO("CartPole-v1", **TINY | {"n_epochs": n_epochs}).learn(64)
        assert_same_state(sweep[f"n_epochs={n_epochs}"], single)


def without_times(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{tag: value for tag, value in row.items() if not tag.startswith("time/")} for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep from the command line and the single run of one of its values."""
    folder = tmp_path_factory.mktemp("sweep")
    options = (
        "CartPole-v1 --algo ppo --seeds 2 --total-timesteps 150 --n-envs 1 --n-steps 32 --hidden-sizes 8"
    )
    options = [*options.split(), "--n-minibatches", "2", "--n-epochs", "1"]
    swept = ["--sweep", "gae_lambda=0.5,0.95", "--sweep", "learning-rate=0.003"]
    assert cli.run(["train", *options, *swept, "--out", str(folder / "sweep")]) == 0
    single = ["--gae-lambda", "0.95", "--learning-rate", "0.003"]
    assert cli.run(["train", *options, *single, "--out", str(folder / "single")]) == 0
    return folder


def test_every_value_has_the_folder_of_its_single_run(finished):
    ours, single = finished / "sweep" / "gae_lambda=0.95,learning_rate=0.003", finished / "single"
    assert {path.name for path in ours.iterdir()} == {path.name for path in single.iterdir()}
    assert (ours / "model.safetensors").read_bytes() == (single / "model.safetensors").read_bytes()
    assert (ours / "episodes.jsonl").read_text() == (single / "episodes.jsonl").read_text()
    assert without_times(ours / "metrics.jsonl") == without_times(single / "metrics.jsonl")
    ours, single = (json.loads((path / "config.json").read_text()) for path in (ours, single))
    assert ours["config"] == single["config"]
    assert ours["run"] == single["run"]


def test_the_table_says_what_the_folders_say(finished):
    sweep = json.loads((finished / "sweep" / "sweep.json").read_text())
    assert sweep["complete"] is True
    assert [row["values"]["gae_lambda"] for row in sweep["variants"]] == [0.5, 0.95]
    for row in sweep["variants"]:
        result = json.loads((finished / "sweep" / row["folder"] / "result.json").read_text())
        for key in ("final_return", "mean", "standard_error", "env_steps"):
            assert row[key] == result[key]
        assert row["state"] == "done"
    assert (finished / "sweep" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    agent = load(finished / "sweep" / "gae_lambda=0.5,learning_rate=0.003")
    assert (agent.seeds, agent.config.gae_lambda) == ((0, 1), 0.5)


def test_a_sweep_overwrites_nothing(finished, capsys):
    arguments = ["train", "CartPole-v1", "--sweep", "gamma=0.9", "--out", str(finished / "sweep")]
    assert cli.run(arguments) == 2
    assert "already holds sweep.json" in capsys.readouterr().err


MISTAKES = {
    "gae_lamda=0.9": "PPODiceConfig has no setting gae_lamda; did you mean gae_lambda?",
    "gae_lambda=0.9,2": "gae_lambda must be in [0, 1], but is 2.0.",
    "gae_lambda=0.9,0.90": "gae_lambda is given 0.9 twice.",
    "dice.divergence=kl,kll": "There is no divergence 'kll'",
    "n_minibatches=1,7": "n_minibatches must be a divisor of n_envs · n_steps = 256, but is 7.",
    "gamma=0.9 --eval-every 100": "A sweep is neither evaluated nor filmed nor tracked",
    "n_envs=8,200000": "200,000 environments for each of 1 seeds are too many",
}


@pytest.mark.parametrize("swept", MISTAKES)
def test_a_mistake_gets_one_sentence_and_no_work(swept, capsys, elsewhere):
    assert cli.run(["train", "CartPole-v1", "--sweep", *swept.split()]) == 2
    error = capsys.readouterr().err
    assert MISTAKES[swept] in error
    assert error.count("\n") == 1
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "A sweep needs a list of values for at least one setting"),
        ({"gamma": []}, "A sweep needs a list of values for at least one setting"),
        ({"gamma": [0.9], "algo": "pp"}, "There is no algorithm 'pp'"),
        ({"gamma": [0.9], "algo": "sign-ppo"}, "'sign-ppo' has no agent class here"),
    ],
)
def test_a_mistake_in_python_gets_a_sentence(settings, sentence):
    register("sign-ppo", PPOConfig, "sign_ppo")
    with pytest.raises(UserError) as caught:
        Sweep("CartPole-v1", **settings)
    assert sentence in str(caught.value)


def test_an_interrupted_sweep_keeps_what_it_has_and_goes_on_later(tmp_path):
    InterruptingCartPole.interrupt_after(100)
    settings = TINY | {"n_epochs": [1, 2]}
    sweep = Sweep(InterruptingCartPole, algo="ppo", backend="gymnasium", workers=0, **settings)
    with pytest.raises(KeyboardInterrupt):
        sweep.learn(64, out=tmp_path / "sweep")
    table = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert table["complete"] is False
    assert [(row["state"], row["env_steps"]) for row in table["variants"]] == [
        ("done", 64),
        ("stopped early", 32),
    ]
    assert load(tmp_path / "sweep" / "n_epochs=2").population.iteration == 1
    assert "stopped early" in sweep.table()
    assert sweep.learn(64).variants[1].env_steps == 96


def test_a_value_that_fails_stops_alone_and_changes_no_other():
    sweep = Sweep("CartPole-v1", algo="ppo", learning_rate=[1e-3, 1e38, 1e-2], **TINY).learn(192)
    good, bad, other = sweep.variants
    assert "became" in bad.failure
    assert (good.state, bad.state, other.state) == ("done", "failed", "done")
    assert bad.env_steps < 192
    assert all(
        np.isfinite(leaf).all() for leaf in jax.tree.leaves(bad.agent.population.state.model.actor.policy)
    )
    assert f"failed: {bad.failure}" in sweep.table()
    for variant in (good, other):
        single = PPO("CartPole-v1", learning_rate=variant.values["learning_rate"], **TINY).learn(192)
        assert_same_state(variant.agent, single)


def test_the_best_value_has_the_highest_mean():
    sweep = Sweep("CartPole-v1", algo="ppo", gamma=np.array([0.9, 0.99]), **TINY)
    with pytest.raises(UserError, match="No value has a return of every seed yet"):
        _ = sweep.best
    sweep.learn(256)
    assert sweep.best.mean == max(variant.mean for variant in sweep.variants)
    with pytest.raises(UserError, match=r"There is no gamma=1 here; there are: gamma=0.9; gamma=0.99."):
        sweep["gamma=1"]


def test_members_of_one_population_differ_in_traced_numbers_alone():
    agent = PPO("CartPole-v1", seeds=2, **TINY)
    envs = agent._next_envs
    other = dataclasses.replace(agent.config, n_epochs=2)
    for configs in ([agent.config, other], [agent.config]):
        with pytest.raises(UserError, match="2 members need as many configs"):
            next(train(agent._algorithm, envs, agent.population, configs, 64))


def test_one_environment_object_serves_values_that_are_trained_one_after_another():
    env = gymnasium.make("CartPole-v1")
    sweep = Sweep(env, algo="ppo", **TINY | {"n_epochs": [1, 2]}).learn(64)
    assert [variant.state for variant in sweep.variants] == ["done", "done"]
    with pytest.raises(UserError, match="One environment object cannot make 2 copies"):
        Sweep(env, algo="ppo", gamma=[0.9, 0.99], **TINY).learn(64)
