import json
import sys

import pytest

from ppo_dice import PPO, PPOConfig, PPODiceConfig, cli, load, tune
from ppo_dice.errors import UserError
from ppo_dice.search_space import Choice, Range, default_search, read_search, split_search
from probes import InterruptingCartPole

TINY = {"n_envs": 1, "n_steps": 32, "n_minibatches": 2, "n_epochs": 1, "hidden_sizes": (8,)}
SEARCH = {"learning_rate": "1e-4:1e-2:log", "gae_lambda": "0.8:0.99", "gamma": [0.9, 0.99]}


def search(out, *, trials=3, env=InterruptingCartPole, **changes):
    options = {"algo": "ppo", "seeds": 2, "final_seeds": 2, "total_timesteps": 160, "search": SEARCH}
    options |= {"backend": "gymnasium", "workers": 0, **TINY, **changes}
    return tune(env, trials=trials, out=out, **options)


def trials_of(out):
    trials = json.loads((out / "tune.json").read_text())["trials"]
    return [(trial["values"], trial["mean"], trial["final_return"]) for trial in trials]


def test_a_search_that_is_stopped_and_taken_up_again_finds_what_one_without_a_stop_finds(tmp_path):
    InterruptingCartPole.interrupt_after(2 * 160 + 100)  # within the second trial
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "stopped")
    assert len(trials_of(tmp_path / "stopped")) == 1
    stopped = search(tmp_path / "stopped")
    whole = search(tmp_path / "whole", trials=2)
    whole = search(tmp_path / "whole", trials=3)
    assert len(trials_of(tmp_path / "whole")) == 3
    assert trials_of(tmp_path / "stopped") == trials_of(tmp_path / "whole")
    assert (stopped.values, stopped.searched, stopped.mean) == (whole.values, whole.searched, whole.mean)


def test_the_winner_has_the_highest_mean_and_is_trained_on_fresh_seeds(tmp_path):
    found = search(tmp_path / "tune", seed=3)
    trials = trials_of(tmp_path / "tune")
    means = [mean for _, mean, _ in trials]
    assert found.searched == max(means)
    values, _, returns = trials[means.index(max(means))]
    assert {name: float(value) for name, value in values.items()} == found.values
    settings = {**TINY, **found.values}
    assert found.winner.seeds == (5, 6)
    again = PPO(InterruptingCartPole, seed=5, seeds=2, backend="gymnasium", workers=0, **settings).learn(160)
    assert found.winner.final_return == again.final_return
    judged = PPO(InterruptingCartPole, seed=3, seeds=2, backend="gymnasium", workers=0, **settings).learn(160)
    assert returns == {str(seed): value for seed, value in judged.final_return.items()}
    assert load(found.folder).seeds == (5, 6)

    before = found.folder.stat().st_mtime_ns
    once_more = search(tmp_path / "tune", seed=3)  # nothing is left to do
    assert (once_more.values, once_more.mean, once_more.folder) == (found.values, found.mean, found.folder)
    assert found.folder.stat().st_mtime_ns == before
    table = json.loads((tmp_path / "tune" / "tune.json").read_text())["winner"]
    assert (table["mean"], table["mean_in_search"]) == (found.mean, found.searched)


def test_a_trial_that_breaks_is_a_bad_one_and_the_search_goes_on(tmp_path):
    lines = []
    found = search(tmp_path / "tune", search={"learning_rate": [1e38, 1e-3]}, trials=4, progress=lines.append)
    assert found.values == {"learning_rate": 1e-3}
    assert any("failed: " in line for line in lines)
    trials = json.loads((tmp_path / "tune" / "tune.json").read_text())["trials"]
    assert any("became" in (trial["reason"] or "") for trial in trials)
    with pytest.raises(UserError, match=r"No trial has a return: .* became"):
        search(tmp_path / "broken", search={"learning_rate": [1e38]}, trials=1)


def test_a_folder_belongs_to_one_search(tmp_path):
    search(tmp_path / "tune", trials=1)
    with pytest.raises(UserError, match="holds a search with another total_timesteps, 160 and not 320"):
        search(tmp_path / "tune", total_timesteps=320)
    with pytest.raises(UserError, match="holds a search with another space"):
        search(tmp_path / "tune", search={"gamma": "0.9:0.99"})


def test_the_command_says_what_it_found(elsewhere, capsys):
    options = "CartPole-v1 --algo ppo --seeds 2 --total-timesteps 160 --trials 2 --final-seeds 2 --out tune"
    options = [
        *options.split(),
        "--n-envs",
        "1",
        "--n-steps",
        "32",
        "--n-minibatches",
        "2",
        "--n-epochs",
        "1",
    ]
    options += ["--hidden-sizes", "8", "--search", "learning_rate=1e-4:1e-2:log", "gamma=0.9,0.99"]
    assert cli.run(["tune", *options]) == 0
    said = capsys.readouterr().out
    assert "trial 2 of 2: " in said
    assert "the best settings again, on fresh seeds 2–3 → tune/winner-" in said
    assert "mean in the search, which is optimistic: " in said
    assert "mean over fresh seeds: " in said


MISTAKES = {
    "--search learning_rat=1e-4:1": "PPODiceConfig has no setting learning_rat; did you mean learning_rate?",
    "--search gamma=0.9:1": "gamma must be in [0, 1), but is 1.0.",
    "--search gamma=0.9:0.8": "gamma needs a range LOW:HIGH or LOW:HIGH:log with LOW < HIGH",
    "--search gamma=0.9:0.99:lin": "gamma needs a range LOW:HIGH or LOW:HIGH:log with LOW < HIGH",
    "--search ent_coef=0:1:log": "ent_coef needs a range above 0",
    "--search gamma": "--search takes NAME=LOW:HIGH",
    "--search gamma=0.9:0.95 gamma=0.8:0.9": "gamma is searched twice",
    "--trials 0": "trials must be at least 1, but is 0.",
    "--algo pp": "There is no algorithm 'pp'",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_gets_one_sentence_and_no_work(arguments, capsys, elsewhere):
    assert cli.run(["tune", "CartPole-v1", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert MISTAKES[arguments] in error
    assert error.count("\n") == 1
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("config", [PPOConfig(), PPODiceConfig()])
def test_the_default_space_is_valid_and_of_numbers_that_compile_once(config):
    import jax

    from ppo_dice.settings import with_settings

    for name, part in read_search(config, default_search(config)).items():
        for value in part.ends:
            assert jax.tree.structure(with_settings(config, {name: value})) == jax.tree.structure(config)


def test_a_space_is_read_from_texts_and_lists():
    space = {"n_epochs": "3:10", "hidden_sizes": "64x64,128", "max_grad_norm": [0.5, None]}
    assert read_search(PPOConfig(), space) == {
        "n_epochs": Range(3, 10),
        "hidden_sizes": Choice(((64, 64), (128,))),
        "max_grad_norm": Choice((0.5, None)),
    }
    assert str(Range(1e-4, 1e-2, log=True)) == "0.0001:0.01:log"
    assert split_search(["a=1:2", "b=x=y"]) == {"a": "1:2", "b": "x=y"}


def test_without_optuna_the_search_says_how_to_get_it(elsewhere, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.run(["tune", "CartPole-v1", "--out", "tune"]) == 2
    assert capsys.readouterr().err == "error: The search needs Optuna: pip install 'ppo-dice[optuna]'.\n"
    assert list(elsewhere.iterdir()) == []
