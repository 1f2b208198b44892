"""Callbacks on real runs: what they see, what they may do, and that training does not notice them."""

import json
import signal
import time
from functools import partial

import gymnasium
import jax
import numpy as np
import pytest

from ppo_dice import PPO, cli, load
from ppo_dice.agent import Agent
from ppo_dice.callbacks import (
    Callback,
    EvalCallback,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from ppo_dice.checkpoint import read_description
from ppo_dice.commands import parse_train
from ppo_dice.errors import UserError
from ppo_dice.evaluation import MAX_COPIES, Evaluation, groups_of_seeds
from ppo_dice.monitor_options import MonitorOptions, monitoring_callbacks
from ppo_dice.population import select

TINY = {"n_envs": 4, "n_steps": 16, "n_minibatches": 2, "n_epochs": 1, "hidden_sizes": (8,)}
STEPS = 64
"""Of one iteration."""
EVALUATION = {"eval_freq": 100, "n_eval_episodes": 3}


def cartpole(**settings):
    return PPO("CartPole-v1", **TINY, **settings)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def result_of(run):
    return json.loads((run / "result.json").read_text())


def without_times(row):
    return {tag: value for tag, value in row.items() if not tag.startswith(("time/", "eval/"))}


def same(one, other):
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A run with evaluations, and the models it had at each of them."""
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    models = {}

    def keep(training):
        if training.evaluation:
            models[training.env_steps] = jax.tree.map(np.array, training.agent.population.state.model)

    agent = cartpole(seeds=2, learning_rate=0.01)
    agent.learn(4 * STEPS, [EvalCallback(**EVALUATION), keep], out=folder)
    return agent, folder, models


def test_evaluation_changes_nothing_of_training(evaluated, tmp_path):
    agent, folder, _ = evaluated
    plain = cartpole(seeds=2, learning_rate=0.01).learn(4 * STEPS, out=tmp_path / "plain")
    assert same(agent.population.state, plain.population.state)
    assert (folder / "episodes.jsonl").read_bytes() == (tmp_path / "plain" / "episodes.jsonl").read_bytes()
    with_, without = (rows(run / "metrics.jsonl") for run in (folder, tmp_path / "plain"))
    assert list(map(without_times, with_)) == list(map(without_times, without))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_evaluations_are_recorded_when_they_are_due(evaluated):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    agent, folder, _ = evaluated
    assert (result_of(folder)["complete"], result_of(folder)["stopped"]) == (True, None)
    raw = rows(folder / "evaluations.jsonl")
    steps = [128, 256]  # 100 and 200 are passed in the second and the fourth iteration, which is the last
    assert [(row["env_steps"], row["seed"]) for row in raw] == [(n, seed) for n in steps for seed in (0, 1)]
    metrics = [row for row in rows(folder / "metrics.jsonl") if "eval/mean_reward" in row]
    assert [(row["env_steps"], row["seed"]) for row in metrics] == [(n, s) for n in steps for s in (0, 1)]
    for row, of in zip(raw, metrics):
        assert len(row["returns"]) == len(row["lengths"]) == 3
        assert of["eval/mean_reward"] == pytest.approx(np.mean(row["returns"]))
        assert of["eval/mean_ep_length"] == pytest.approx(np.mean(row["lengths"]))
        assert of["time/eval_seconds"] > 0
    assert {row["seed"]: row["returns"] for row in raw[2:]} == agent.evaluate(3, env_seed=1).returns

    events = EventAccumulator(str(folder / "tensorboard" / "seed_0"))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("eval/mean_reward")]
    expected = [(row["env_steps"], row["eval/mean_reward"]) for row in metrics if row["seed"] == 0]
    np.testing.assert_allclose(written, expected, rtol=1e-6)
    assert events.Images("learning_curve")[0].step == 256


def test_the_best_model_is_the_best_of_every_seed_by_itself(evaluated):
    agent, folder, models = evaluated
    path = folder / "best_model.safetensors"
    origin = read_description(path)["best"]
    raw = rows(folder / "evaluations.jsonl")
    best = load(path)
    for member, seed in enumerate((0, 1)):
        means = {row["env_steps"]: np.mean(row["returns"]) for row in raw if row["seed"] == seed}
        at = max(means, key=means.get)  # the first of equals
        assert origin[str(seed)] == {"env_steps": at, "mean_reward": pytest.approx(means[at])}
        assert same(select(best.population.state.model, member), select(models[at], member))
        assert np.mean(best.evaluate(3, env_seed=1, seed=seed).returns[seed]) == means[at]


def test_a_seed_has_the_same_evaluations_and_best_model_alone_and_in_a_population(evaluated, tmp_path):
    _, folder, _ = evaluated
    alone = cartpole(seed=1, learning_rate=0.01)
    alone.learn(4 * STEPS, EvalCallback(**EVALUATION, best_model_save_path=tmp_path))
    best, single = load(folder / "best_model.safetensors"), load(tmp_path / "best_model.safetensors")
    assert same(select(best.population.state.model, 1), select(single.population.state.model, 0))


def test_many_episodes_of_many_seeds_are_those_of_each_seed():
    assert groups_of_seeds((0, 1, 2, 3, 4), MAX_COPIES // 2) == [(0, 1), (2, 3), (4,)]
    assert groups_of_seeds((0, 1), 3 * MAX_COPIES) == [(0,), (1,)]
    agent = cartpole(seeds=3)
    together = agent.evaluate(30)
    assert together.returns == {s: agent.evaluate(30, seed=s).returns[s] for s in range(3)}


def test_a_function_sees_the_run_and_ends_it(tmp_path):
    seen = []

    def look(training):
        action, _ = training.agent.predict(np.zeros(4, np.float32), seed=3)
        seen.append(
            (training.iteration, training.env_steps, training.previous_env_steps, int(action) in (0, 1))
        )
        assert training.seeds == tuple(training.metrics) == tuple(training.episodes) == (2, 3)
        assert training.metrics[2]["train/clip_range"] > 0
        with pytest.raises(TypeError):
            training.metrics[2]["train/clip_range"] = 0
        for member, seed in enumerate(training.seeds):
            assert all(episode.member == member for episode in training.episodes[seed])
        assert training.folder == tmp_path / "run"
        training.record("mine/number", {2: 1.0, 3: float(training.env_steps)})
        training.record("mine/shared", 7.0)
        assert training.metrics[3]["mine/number"] == training.env_steps
        return training.iteration < 2

    agent = cartpole(seed=2, seeds=2).learn(100 * STEPS, look, out=tmp_path / "run")
    assert seen == [(1, 64, 0, True), (2, 128, 64, True)]
    assert agent.stop_reason is not None
    assert agent.stop_reason.endswith("look returned False")
    result = result_of(tmp_path / "run")
    assert (result["complete"], result["env_steps"], result["stopped"]) == (False, 128, agent.stop_reason)
    lines = rows(tmp_path / "run" / "metrics.jsonl")
    assert [(line["mine/number"], line["mine/shared"]) for line in lines] == [
        (1, 7),
        (64, 7),
        (1, 7),
        (128, 7),
    ]
    assert load(tmp_path / "run").population.iteration == 2
    assert (tmp_path / "run" / "learning_curve.png").exists()
    (name,) = json.loads((tmp_path / "run" / "config.json").read_text())["callbacks"]
    assert name.endswith("look")
    assert agent.learn(STEPS).stop_reason is None  # and it can go on


class Diary(Callback):
    def __init__(self, pages, *, fails_in=None, error=None):
        self.pages, self.fails_in, self.error = pages, fails_in, error

    def on_training_start(self, training):
        self.pages.append("start")
        if self.fails_in == 0:
            raise self.error

    def on_iteration(self, training):
        self.pages.append(training.iteration)
        if training.iteration == self.fails_in:
            raise self.error

    def on_training_end(self, training):
        self.pages.append("end")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(ValueError("lost my way"), "ValueError('lost my way')"), (KeyboardInterrupt(), "interrupted")],
)
def test_a_callback_that_raises_loses_nothing(error, sentence, tmp_path):
    pages, other = [], []
    agent = cartpole()
    with pytest.raises(type(error)):
        agent.learn(100 * STEPS, [Diary(other), Diary(pages, fails_in=2, error=error)], out=tmp_path / "run")
    assert pages == other == ["start", 1, 2, "end"]
    assert agent.population.iteration == 2
    assert [row["iteration"] for row in rows(tmp_path / "run" / "metrics.jsonl")] == [1, 2]
    assert (result_of(tmp_path / "run")["complete"], result_of(tmp_path / "run")["stopped"]) == (
        False,
        sentence,
    )
    assert same(load(tmp_path / "run").population.state.model, agent.population.state.model)


def test_a_callback_that_cannot_start_prevents_everything_and_the_others_end(tmp_path):
    pages, other = [], []
    diaries = [Diary(other), Diary(pages, fails_in=0, error=UserError("no ink"))]
    with pytest.raises(UserError, match="no ink"):
        cartpole().learn(STEPS, diaries, out=tmp_path / "run")
    assert (other, pages) == (["start", "end"], ["start"])
    assert list(tmp_path.iterdir()) == []


def test_all_callbacks_end_where_one_fails_to(tmp_path):
    class Stuck(Diary):
        def on_training_end(self, training):
            raise OSError("stuck")

    pages = []
    with pytest.raises(OSError, match="stuck"):
        cartpole().learn(STEPS, [Diary(pages), Stuck([])], out=tmp_path / "run")
    assert pages == ["start", 1, "end"]
    assert result_of(tmp_path / "run")["complete"] is True


def test_an_interrupt_reaches_a_callback_and_the_iteration_is_kept(tmp_path):
    def long(training):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the interrupt waited")

    with pytest.raises(KeyboardInterrupt):
        cartpole().learn(9 * STEPS, long, out=tmp_path / "run")
    assert [row["iteration"] for row in rows(tmp_path / "run" / "metrics.jsonl")] == [1]
    assert result_of(tmp_path / "run")["stopped"] == "interrupted"


def test_the_time_of_callbacks_is_not_that_of_training():
    speeds = []

    def slow(training):
        time.sleep(0.5)
        speeds.append(training.metrics[0]["time/fps"])

    cartpole().learn(3 * STEPS, slow)
    assert min(speeds[1:]) > STEPS / 0.5  # an iteration after the first, which compiles, takes milliseconds


class Scripted(Callback):
    """An evaluation of one's own, with results known beforehand."""

    def __init__(self, *by_seed):
        self.by_seed = by_seed

    def on_training_start(self, training):
        training.evaluates = True

    def on_iteration(self, training):
        if training.iteration % 2 == 0:  # not after every iteration
            values = [series[training.iteration // 2 - 1] for series in self.by_seed]
            returns = {seed: [float(value)] for seed, value in zip(training.seeds, values)}
            training.add_evaluation(Evaluation(True, returns, {seed: [1] for seed in training.seeds}))


@pytest.mark.parametrize(
    ("stop", "series", "evaluations", "reason"),
    [
        # Each seed reaches 5 once, the second in the third evaluation, when the first has fallen again.
        (
            StopTrainingOnRewardThreshold(5.0),
            [[1, 5, 2, 9], [1, 2, 6, 9]],
            3,
            "every seed has reached a mean evaluation return of 5",
        ),
        (StopTrainingOnRewardThreshold(5.0), [[9, 9, 9, 9], [1, 2, 3, 4]], 4, None),
        # Seed 0 is at its best in the first evaluation and seed 1 in the second: two in a row after that.
        (
            StopTrainingOnNoModelImprovement(1),
            [[3, 1, 1, 1, 9], [1, 2, 2, 2, 9]],
            4,
            "no seed has improved for 2 evaluations",
        ),
        (StopTrainingOnNoModelImprovement(1), [[3, 1, 1, 1], [1, 2, 3, 4]], 4, None),
        (
            StopTrainingOnNoModelImprovement(0, min_evals=3),
            [[3, 1, 1, 1, 9]],
            4,
            "no seed has improved for 1 evaluation",
        ),
    ],
)
def test_a_run_ends_when_every_seed_is_done(stop, series, evaluations, reason):
    agent = cartpole(seeds=len(series))
    agent.learn(2 * len(series[0]) * STEPS, [Scripted(*series), stop])
    assert agent.population.iteration == 2 * evaluations
    assert agent.stop_reason == reason


def test_evaluation_in_another_environment(tmp_path):
    env = gymnasium.make("CartPole-v1")
    agent = PPO(env, **(TINY | {"n_envs": 1}))
    short = partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)
    with pytest.raises(UserError, match="used for training; evaluation needs another: eval_env="):
        agent.learn(STEPS, EvalCallback(**EVALUATION))
    agent.learn(STEPS, EvalCallback(eval_env=short, **EVALUATION), out=tmp_path / "run")
    assert {n for row in rows(tmp_path / "run" / "evaluations.jsonl") for n in row["lengths"]} == {5}
    agent.learn(STEPS, EvalCallback(eval_env=short(), **EVALUATION))
    (name,) = json.loads((tmp_path / "run" / "config.json").read_text())["callbacks"]
    assert name.startswith(
        "EvalCallback(eval_env=partial, eval_freq=100, n_eval_episodes=3, deterministic=True"
    )


def learn(*callbacks, **options):
    return lambda: cartpole(**options).learn(STEPS, callbacks)


def recording(tag, value):
    return learn(lambda training: training.record(tag, value))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (learn(EvalCallback), "or a Callback object, but is <class"),
        (lambda: EvalCallback(eval_freq=0), "eval_freq must be at least 1, but is 0."),
        (lambda: EvalCallback(n_eval_episodes=0), "n_eval_episodes must be at least 1, but is 0."),
        (lambda: StopTrainingOnNoModelImprovement(-1), "max_no_improvement_evals must be at least 0"),
        (
            lambda: StopTrainingOnRewardThreshold(float("nan")),
            "reward_threshold must be a number, but is nan.",
        ),
        (learn(StopTrainingOnRewardThreshold(1.0)), "put an EvalCallback before it in the list."),
        (learn(EvalCallback(), EvalCallback()), "There can be one EvalCallback in a run."),
        (learn(EvalCallback(eval_env="Pendulum-v1")), "Pendulum-v1 has the observation space"),
        (
            learn(EvalCallback(best_model_save_path="/proc/x")),
            "/proc/x cannot be the folder of the best model",
        ),
        (recording("mine/x", float("inf")), "mine/x must be finite to be recorded, but is inf for seed 0."),
        (recording("train/clip_range", 1.0), "A callback cannot record 'train/clip_range'"),
        (recording("seed", 1.0), "choose another name, such as mine/seed."),
        (recording("mine/x", {5: 1.0}), "mine/x was recorded for seed 5, which is not in the population."),
    ],
)
def test_a_mistake_gets_a_sentence(call, sentence):
    with pytest.raises(UserError) as caught:
        call()
    assert sentence in str(caught.value)


def test_evaluation_and_its_end_from_the_command_line(tmp_path, capsys):
    run = tmp_path / "run"
    arguments = [
        "Pendulum-v1",
        "--algo",
        "ppo",
        "--total-timesteps",
        "4000",
        "--n-steps",
        "50",
        "--n-envs",
        "2",
    ]
    arguments += ["--n-minibatches", "1", "--n-epochs", "1", "--hidden-sizes", "8", "--out", str(run)]
    monitor = ["--eval-every", "100", "--eval-episodes", "2", "--stop-at-return", "-2000"]
    assert cli.run(["train", *arguments, *monitor]) == 0
    out = capsys.readouterr().out
    assert "stopped: every seed has reached a mean evaluation return of -2000" in out
    assert "best evaluation of every seed, mean over seeds: -" in out
    assert [row["env_steps"] for row in rows(run / "evaluations.jsonl")] == [100]
    assert len(rows(run / "evaluations.jsonl")[0]["returns"]) == 2
    assert cli.run(["evaluate", str(run / "best_model.safetensors"), "--episodes", "1"]) == 0


def test_monitoring_is_off_unless_it_is_asked_for():
    options = parse_train(["Hopper-v5"]).monitor
    assert options == MonitorOptions(eval_every=None, stop_at_return=None, capture_video=False, track=False)
    assert monitoring_callbacks(options, 1000) == []


def test_what_a_callback_is_given_is_the_agent():
    given = []
    agent = cartpole()
    assert isinstance(agent.learn(STEPS, lambda training: given.append(training.agent)), Agent)
    assert given == [agent]
