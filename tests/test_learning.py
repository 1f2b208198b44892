"""PPO on problems it must solve, several seeds at once, each with a fixed budget."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from ppo_dice import PPO, PPODice
from ppo_dice.agent import Agent
from probes import (
    ActionEqualsObservation,
    ConstantReward,
    DelayedReward,
    Endless,
    RewardIsObservation,
    RightActionByObservation,
)

pytestmark = pytest.mark.usefixtures("as_shipped")
SEEDS = 3


def train_probe(make: Any, steps: int = 4096, **settings: Any) -> Agent:
    small = {
        "n_envs": 4,
        "n_steps": 32,
        "n_minibatches": 4,
        "learning_rate": 3e-3,
        "normalize_rewards": False,
    }
    settings = {**small, "learning_rate_schedule": "constant", "gamma": 0.9, **settings}
    return PPO(make, seeds=SEEDS, workers=0, **settings).learn(steps)


def values_at(agent: Agent, *observations: float) -> np.ndarray:
    """V of every seed at these observations: [S, n]."""
    obs = np.asarray(observations, np.float32)[:, None]

    @jax.jit
    @jax.vmap
    def judge(model: Any) -> Any:
        return jax.vmap(lambda o: model.value(model.normalizer(o)))(obs)

    return np.asarray(judge(agent.population.state.model))


def test_a_constant_reward_is_worth_itself():
    np.testing.assert_allclose(values_at(train_probe(ConstantReward), 0.0), 1, atol=0.05)


def test_the_value_follows_the_observation():
    values = values_at(train_probe(RewardIsObservation), -1.0, 1.0)
    np.testing.assert_allclose(values, [[-1, 1]] * SEEDS, atol=0.1)


def test_a_later_reward_is_discounted():
    values = values_at(train_probe(DelayedReward, 8192), 0.0, 1.0)
    np.testing.assert_allclose(values, [[0.9, 1]] * SEEDS, atol=0.05)


@pytest.mark.parametrize("make", [Endless, partial(Endless, limit=7)])
def test_the_endless_environment_is_worth_one_over_one_minus_gamma(make):
    # 1/(1 − .9) = 10, and a time limit that is not a termination changes nothing.
    values = values_at(train_probe(make, 16384, normalize_observations=False, vf_coef=0.5), 0.0)
    np.testing.assert_allclose(values, 10, rtol=0.05)


def test_a_time_limit_taken_for_a_termination_is_worth_less():
    # Cut after every step, an "ended" episode is worth its one reward.
    settings = {"time_limits": "terminate", "normalize_observations": False}
    values = values_at(train_probe(partial(Endless, limit=1), **settings), 0.0)
    np.testing.assert_allclose(values, 1, atol=0.05)


def test_the_right_action_is_found_by_the_observation():
    agent = train_probe(RightActionByObservation)
    assert min(agent.evaluate(50).mean_by_seed.values()) == 1


def test_a_continuous_action_follows_the_observation():
    # A policy that ignores the observation loses at least Var(s/2) = 1/12 on average; sampling adds its own.
    agent = train_probe(ActionEqualsObservation, 32768, n_steps=64, log_std_init=-1.0)
    assert min(agent.evaluate(50).mean_by_seed.values()) > -0.01


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_cartpole_is_solved_by_every_seed(backend):
    agent = PPO("CartPole-v1", seeds=SEEDS, backend=backend, workers=0).learn(100_000)
    assert min(agent.evaluate(20).mean_by_seed.values()) >= 475


def test_ppo_dice_solves_cartpole_with_every_seed():
    agent = PPODice("CartPole-v1", seeds=SEEDS, dice={"coefficient": 0.1}).learn(100_000)
    assert min(agent.evaluate(20).mean_by_seed.values()) >= 475


@pytest.mark.parametrize("algorithm", [PPO, PPODice])
def test_pendulum_is_solved_by_every_seed(algorithm):
    agent = algorithm("Pendulum-v1", seeds=SEEDS).learn(150_000)
    assert min(agent.evaluate(20).mean_by_seed.values()) > -300
