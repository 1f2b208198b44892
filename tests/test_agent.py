import contextlib
import json
import signal
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from safetensors import safe_open

import ppo_dice
from ppo_dice import PPO, Agent, DiceConfig, PPODice, load
from ppo_dice.checkpoint import save_arrays
from ppo_dice.errors import UserError
from ppo_dice.evaluation import Evaluation

TINY = {"n_steps": 32, "n_minibatches": 2, "n_epochs": 1, "hidden_sizes": (8,)}


class AnySpaces(gymnasium.Env[Any, Any]):
    """Checks that actions belong to their space; ends after ten steps."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 10, False, {}


VECTOR = Box(-1, 1, (3,), np.float32)
OBSERVATIONS = {
    "vector": VECTOR,
    "float64 matrix": Box(-np.inf, np.inf, (2, 2), np.float64),
    "discrete": Discrete(5, start=2),
    "multi-discrete": MultiDiscrete([2, 3]),
    "multi-binary": MultiBinary(4),
    "dict": Dict(a=VECTOR, b=Discrete(3), c=Tuple([MultiBinary(2), VECTOR])),
    "tuple": Tuple([VECTOR, MultiDiscrete([2, 2])]),
}
ACTIONS = {
    "bounded": Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 0.5], np.float32)),
    "unbounded": Box(-np.inf, np.inf, (2, 2), np.float64),
    "discrete": Discrete(3, start=-1),
    "multi-discrete": MultiDiscrete([2, 4, 3]),
    "multi-binary": MultiBinary(3),
}
CASES = [
    *((PPO, observations, "discrete") for observations in OBSERVATIONS),
    *((algorithm, "vector", actions) for algorithm in (PPO, PPODice) for actions in ACTIONS),
]


@pytest.mark.parametrize(("algorithm", "observations", "actions"), CASES)
def test_every_space_is_trained_on_predicted_for_evaluated_saved_and_loaded(
    algorithm, observations, actions, tmp_path
):
    make = lambda: AnySpaces(OBSERVATIONS[observations], ACTIONS[actions])
    agent = algorithm(make, seeds=2, workers=0, **TINY).learn(64)
    assert agent.final_return == {0: 10.0, 1: 10.0}
    env = make()
    observation, _ = env.reset(seed=0)
    action, state = agent.predict(observation, deterministic=True)
    assert env.action_space.contains(action)
    assert state is None
    sampled, _ = agent.predict(observation, seed=1)
    assert env.action_space.contains(sampled)

    loaded = load(agent.save(tmp_path / "model"), env=make)
    assert type(loaded) is algorithm
    again, _ = loaded.predict(observation, deterministic=True)
    np.testing.assert_array_equal(again, action)
    assert loaded.evaluate(3).returns == {0: [10.0] * 3, 1: [10.0] * 3}


def test_predict_takes_batches_and_picks_a_member():
    agent = PPO("Pendulum-v1", seed=4, seeds=2, **{**TINY, "n_envs": 1})
    batch = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    first, _ = agent.predict(batch, deterministic=True)
    assert first.shape == (7, 1)
    np.testing.assert_array_equal(agent.predict(batch, deterministic=True, seed=4)[0], first)
    assert (agent.predict(batch, deterministic=True, seed=5)[0] != first).any()
    np.testing.assert_allclose(agent.predict(batch[2], deterministic=True)[0], first[2], rtol=1e-5, atol=1e-7)
    draws = [agent.predict(batch[0])[0] for _ in range(3)]
    assert len({float(draw[0]) for draw in draws}) == 3
    assert np.abs(draws).max() <= 2  # Pendulum's bound
    with pytest.raises(UserError, match="There is no seed 0 here; the seeds are 4, 5"):
        agent.predict(batch, seed=0)
    with pytest.raises(UserError, match="neither one from"):
        agent.predict(np.zeros(4))


def test_a_member_alone_is_an_agent_of_its_seed(tmp_path):
    agent = PPO("CartPole-v1", seed=4, seeds=3, **TINY).learn(512)
    member = agent.member(5)
    assert (agent.seeds, member.seeds, member.run.seed_values) == ((4, 5, 6), (5,), range(5, 6))
    assert member.final_return == {5: agent.final_return[5]}
    assert member.evaluate(2) == agent.evaluate(2, seed=5)
    assert PPO.load(member.save(tmp_path / "member")).evaluate(2) == agent.evaluate(2, seed=5)
    trained, alone = agent.learn(256), member.learn(256)
    for ours, single in zip(
        jax.tree.leaves(trained.population.state), jax.tree.leaves(alone.population.state), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(ours)[1], np.asarray(single)[0])
    with pytest.raises(UserError, match="There is no seed 7 here; the seeds are 4, 5, 6"):
        agent.member(7)


def test_what_is_loaded_acts_and_evaluates_like_what_was_saved(tmp_path):
    agent = PPO("CartPole-v1", seed=2, seeds=2, learning_rate=0.002).learn(4096)
    path = agent.save(tmp_path / "cartpole")
    assert path.name == "cartpole.safetensors"
    loaded = PPO.load(tmp_path / "cartpole")
    assert loaded.seeds == (2, 3)
    assert loaded.config == agent.config
    assert loaded.evaluate(5) == agent.evaluate(5)
    assert loaded.evaluate(4, seed=3).returns[3] == agent.evaluate(4, seed=3).returns[3]
    assert type(load(path)) is PPO
    before = agent.population.iteration
    loaded.learn(1024)
    assert loaded.population.iteration == before + 4


def test_the_model_file_is_the_same_for_the_same_run_and_holds_statistics(tmp_path):
    files = []
    for name in ("one", "two"):
        agent = PPO("Pendulum-v1", seeds=2, **{**TINY, "n_envs": 2}).learn(256)
        files.append(agent.save(tmp_path / name).read_bytes())
    assert files[0] == files[1]
    with safe_open(tmp_path / "one.safetensors", framework="numpy") as file:
        names = set(file.keys())
        description = json.loads(file.metadata()["ppo_dice"])
    assert {"normalizer.moments.mean", "return_moments.variance", "policy.log_std"} <= names
    assert not any("optimizer" in name for name in names)
    assert description["algorithm"] == "ppo"
    assert description["env"] == "Pendulum-v1"
    assert description["format_version"] == 1


def test_learning_again_goes_on_with_other_episodes(tmp_path):
    agent = PPO("CartPole-v1").learn(512)
    first = agent.population.iteration
    agent.learn(512)
    assert agent.population.iteration == 2 * first
    path = agent.save(tmp_path / "model")
    assert PPO.load(path)._segment == 2  # the next episodes are new ones


def test_an_environment_already_made_serves_one_copy_and_no_more():
    env = gymnasium.make("CartPole-v1")
    agent = PPO(env, n_envs=1, **TINY).learn(64)
    assert len(agent.evaluate(2).returns[0]) == 2
    agent.learn(64)
    env.reset()  # still open: it is the caller's
    with pytest.raises(UserError, match="One environment object cannot make 2 copies"):
        PPO(env, seeds=2, n_envs=1, **TINY)


def test_evaluation_statistics_are_over_seeds():
    result = Evaluation(True, {0: [1.0, 3.0], 1: [4.0, 4.0]}, {0: [1, 3], 1: [4, 4]})
    assert result.mean_by_seed == {0: 2.0, 1: 4.0}
    assert result.mean == 3
    assert result.standard_error == pytest.approx(1.0)  # SD √2 over √2
    assert Evaluation(True, {0: [1.0]}, {0: [1]}).standard_error is None


def test_evaluation_runs_as_many_episodes_as_asked_of_every_seed():
    result = PPO("CartPole-v1", seeds=3).evaluate(25)
    assert {seed: len(values) for seed, values in result.returns.items()} == {0: 25, 1: 25, 2: 25}
    assert all(ret == length for s in range(3) for ret, length in zip(result.returns[s], result.lengths[s]))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PPO("CartPole-v1", learning_rat=1), "no setting learning_rat; did you mean learning_rate?"),
        (lambda: PPO("CartPole-v1", preset="best"), "There is no preset 'best' for ppo; known are: default"),
        (lambda: PPO("CartPol-v1"), "CartPole-v1"),
        (lambda: PPO(None), "There is no environment; give an id, a callable"),
        (lambda: PPO("CartPole-v1", seeds=20_000), "8 environments for each of 20,000 seeds are too many"),
        (lambda: PPO("CartPole-v1", n_steps=10**12), "takes at least"),
        (
            lambda: PPODice("Hopper-v5", dice={"coeficient": 1.0}),
            "setting coeficient; did you mean coefficient?",
        ),
        (
            lambda: PPO("CartPole-v1").save("/proc/model"),
            "The model cannot be saved as /proc/model.safetensors: ",
        ),
        (lambda: PPO("CartPole-v1", seeds=0), "seeds must be at least 1, but is 0."),
        (lambda: PPO("CartPole-v1").save("."), "The model cannot be saved as .: a name is needed."),
        (lambda: PPO("CartPole-v1").learn(0), "total_timesteps must be at least 1, but is 0."),
        (lambda: PPO("CartPole-v1").evaluate(0), "episodes must be at least 1, but is 0."),
        (lambda: PPO.load("nowhere"), "There is no run's folder and no model file nowhere."),
    ],
)
def test_a_users_mistake_gets_a_sentence(call, sentence):
    with pytest.raises(UserError) as caught:
        call()
    assert sentence in str(caught.value)


def test_a_model_is_refused_by_another_environment_and_another_algorithm(tmp_path):
    path = PPO("CartPole-v1", **TINY).save(tmp_path / "model")
    with pytest.raises(UserError, match=r"Pendulum-v1 has the observation space .* belongs to CartPole-v1"):
        PPO.load(path, env="Pendulum-v1")

    class Other(Agent):
        algorithm = "other"

    with pytest.raises(UserError, match="holds a model of 'ppo', not of 'other'"):
        Other.load(path)
    with pytest.raises(UserError, match="load takes backend, workers and env_kwargs, but not colour"):
        PPO.load(path, colour="red")


def test_a_model_of_a_callable_predicts_alone_but_asks_for_its_environment_to_evaluate(tmp_path):
    make = lambda: AnySpaces(VECTOR, Discrete(2))
    path = PPO(make, workers=0, **TINY).save(tmp_path / "model")
    loaded = PPO.load(path)
    loaded.predict(np.zeros(3, np.float32))
    with pytest.raises(UserError, match="pass it to load as env="):
        loaded.evaluate(1)


class Sized(AnySpaces):
    def __init__(self, size: int = 3) -> None:
        super().__init__(VECTOR, Discrete(2))


def test_saved_arguments_are_those_of_the_saved_environment_alone(tmp_path):
    id_path = PPO("CartPole-v1", env_kwargs={"max_episode_steps": 7}, **TINY).save(tmp_path / "id")
    assert PPO.load(id_path).env_kwargs == {"max_episode_steps": 7}
    assert PPO.load(id_path, env="CartPole-v1").env_kwargs == {"max_episode_steps": 7}
    other = PPO.load(id_path, env="CartPole-v0")
    assert other.env_kwargs == {}
    assert other.spec.id == "CartPole-v0"
    assert max(other.evaluate(4).lengths[0]) > 7
    given = PPO.load(id_path, env="CartPole-v0", env_kwargs={"max_episode_steps": 9})
    assert given.env_kwargs == {"max_episode_steps": 9}

    assert PPO.load(id_path, env=lambda: gymnasium.make("CartPole-v1")).env_kwargs == {}  # not EnvPool's

    callable_path = PPO(Sized, env_kwargs={"size": 5}, workers=0, **TINY).save(tmp_path / "callable")
    assert PPO.load(callable_path, env=Sized).env_kwargs == {"size": 5}
    assert PPO.load(callable_path, env=Sized()).env_kwargs == {}


def test_a_model_loaded_with_another_environment_is_saved_as_that(tmp_path):
    path = PPO("CartPole-v1", **TINY).save(tmp_path / "model")
    again = PPO.load(path, env="CartPole-v0").save(tmp_path / "again")
    assert PPO.load(again).env == "CartPole-v0"


def test_a_model_is_found_beside_a_folder_of_the_same_name(tmp_path):
    (tmp_path / "hopper").mkdir()
    path = PPO("CartPole-v1", **TINY).save(tmp_path / "hopper")
    assert path.name == "hopper.safetensors"
    assert PPO.load(tmp_path / "hopper").seeds == (0,)


def test_a_config_within_the_config_is_given_whole_or_in_part_and_comes_back_from_the_file(tmp_path):
    whole = DiceConfig(coefficient=0.5, hidden_sizes=(8,))
    assert PPODice("CartPole-v1", dice=whole, **TINY).config.dice == whole
    agent = PPODice("CartPole-v1", dice={"coefficient": 0.5, "hidden_sizes": [8]}, **TINY)
    assert agent.config.dice == whole
    assert PPODice.load(agent.save(tmp_path / "model")).config == agent.config


@pytest.mark.parametrize(("place", "owner"), [((), "PPODiceConfig"), (("dice",), "DiceConfig")])
def test_a_setting_of_another_version_gets_a_sentence(place, owner, tmp_path):
    agent = PPODice("CartPole-v1", **TINY)
    description = agent.description()
    config = description["config"]
    for name in place:
        config = config[name]
    config["colour"] = "red"
    path = tmp_path / "newer.safetensors"
    save_arrays(path, agent.population.state.model, description)
    with pytest.raises(UserError, match=rf"newer.safetensors has settings .* {owner} has no setting colour"):
        PPODice.load(path)


def test_one_action_without_axes_is_still_an_array():
    make = lambda: AnySpaces(VECTOR, Box(-1.0, 1.0, (), np.float32))
    agent = PPO(make, workers=0, **TINY)
    action, _ = agent.predict(np.zeros(3, np.float32))
    assert isinstance(action, np.ndarray)
    assert action.shape == ()
    assert agent.predict(np.zeros((2, 3), np.float32))[0].shape == (2,)


class Swallowing(AnySpaces):
    """Interrupts, and ignores it."""

    def step(self, action: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return super().step(action)


def test_an_interrupt_that_is_swallowed_stops_training_at_the_end_of_the_iteration(tmp_path):
    agent = PPO(lambda: Swallowing(VECTOR, Discrete(2)), workers=0, **TINY)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(320, out=tmp_path / "run")
    assert agent.population.iteration == 1
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["complete"], result["env_steps"]) == (False, 32)


def test_a_run_that_is_interrupted_while_its_folder_is_made_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("ppo_dice.run_folder.versions", lambda: signal.raise_signal(signal.SIGINT) or {})
    agent = PPO("CartPole-v1", **TINY)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(320, out=tmp_path / "run")
    assert PPO.load(tmp_path / "run").population.iteration == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["env_steps"] == 0


def test_the_package_shows_its_names_before_they_are_imported():
    assert set(ppo_dice.__all__) <= set(dir(ppo_dice))
