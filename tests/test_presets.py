import math

import pytest

from ppo_dice import PPO
from ppo_dice.presets import CLASSIC_CONTROL, PRESET_NAMES, preset

MUJOCO = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum")
MUJOCO += ("InvertedPendulum", "Reacher", "Swimmer", "Walker2d")


@pytest.mark.parametrize("name", PRESET_NAMES)
@pytest.mark.parametrize("env", ["Hopper-v5", *(f"{task}-v1" for task in CLASSIC_CONTROL)])
def test_every_preset_trains(name, env):
    env = env.replace("MountainCar-v1", "MountainCar-v0")
    config = preset("ppo", env, name)
    agent = PPO(env, preset=name).learn(2 * config.batch_size)
    assert agent.config == config
    assert agent.population.iteration == 2


@pytest.mark.parametrize("task", MUJOCO)
def test_mujoco_tasks_of_the_paper_can_all_be_made_and_stepped(task):
    agent = PPO(f"{task}-v5", n_steps=32, n_minibatches=1, n_epochs=1).learn(32)
    assert agent.spec.max_episode_steps == (50 if task == "Reacher" else 1000)


def test_the_paper_and_its_code_as_the_tables_say():
    paper, published = preset("ppo", "Hopper-v5", "paper"), preset("ppo", "Hopper-v5", "published")
    for config in (paper, published):
        assert (config.n_envs, config.n_steps, config.n_epochs) == (1, 2048, 10)
        assert (config.gamma, config.gae_lambda, config.clip_range, config.ent_coef) == (0.99, 0.95, 0.2, 0)
        assert math.isclose(config.learning_rate, 3e-4)
        assert config.hidden_sizes == (64, 64)
        assert config.policy_head_gain == 1
        assert config.max_grad_norm == 0.5
    assert (paper.n_minibatches, published.n_minibatches) == (4, 32)
    assert (paper.vf_coef, published.vf_coef) == (0.5, 0.25)
    assert (paper.learning_rate_schedule, published.learning_rate_schedule) == ("constant", "linear")


def test_settings_are_found_with_and_without_a_module():
    assert preset("ppo", "gymnasium:CartPole-v1") == preset("ppo", "CartPole-v1")
    assert preset("ppo", "CartPole-v1") != preset("ppo", "Unknown-v1")
    assert preset("ppo", lambda: None) == preset("ppo", "Unknown-v1")
