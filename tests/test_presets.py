import math
from dataclasses import replace

import pytest

from ppo_dice import PPO, DiceConfig, PPODice
from ppo_dice.errors import UserError
from ppo_dice.presets import (
    CLASSIC_CONTROL,
    DICE_TUNED,
    PRESET_NAMES,
    preset,
    preset_names,
)

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


@pytest.mark.parametrize("name", preset_names("ppo-dice"))
@pytest.mark.parametrize("env", ["Hopper-v5", "CartPole-v1"])
def test_every_preset_of_ppo_dice_trains(name, env):
    config = preset("ppo-dice", env, name)
    agent = PPODice(env, preset=name).learn(2 * config.batch_size)
    assert agent.config == config
    assert agent.population.iteration == 2


def test_ppo_dice_has_the_settings_of_ppo_and_its_own():
    for name in PRESET_NAMES:
        plain, ours = preset("ppo", "Hopper-v5", name), preset("ppo-dice", "Hopper-v5", name)
        assert all(getattr(ours, field) == value for field, value in vars(plain).items())
    paper, published = (preset("ppo-dice", "Hopper-v5", name).dice for name in ("paper", "published"))
    assert (paper.discriminator_steps, paper.learning_rate_factor) == (5, 10)
    assert (published.discriminator_steps, published.learning_rate_factor) == (1, 1)
    for dice in (paper, published):
        assert (dice.form, dice.divergence, dice.coefficient) == ("paper", "kl", "adaptive")
        assert (dice.orthogonal_penalty, dice.certificate, dice.known_ratio) == (1e-4, "log", False)
    assert (paper.adaptive_scope, published.adaptive_scope) == ("batch", "minibatch")
    assert (paper.learning_rate_schedule, published.learning_rate_schedule) == ("policy", "constant")


@pytest.mark.parametrize("task", MUJOCO)
def test_the_tuned_preset_differs_from_the_paper_in_two_numbers(task):
    paper, tuned = (preset("ppo-dice", f"{task}-v5", name) for name in ("paper", "paper-tuned"))
    assert (tuned.dice.discriminator_steps, tuned.dice.learning_rate_factor) == DICE_TUNED[task]
    same = {"discriminator_steps": 5, "learning_rate_factor": 10.0}
    assert replace(tuned, dice=replace(tuned.dice, **same)) == paper


@pytest.mark.parametrize("env", ["Pong-v5", "ALE/Pong-v5", "SeaquestNoFrameskip-v4", "Asterix-v5"])
@pytest.mark.parametrize("name", PRESET_NAMES)
def test_atari_has_settings_of_its_own(env, name):
    config = preset("ppo-dice", env, name)
    assert (config.n_envs, config.n_steps, config.n_epochs, config.n_minibatches) == (8, 128, 4, 4)
    assert (config.clip_range, config.ent_coef, config.time_limits) == (0.1, 0.01, "terminate")
    assert config.learning_rate == 2.5e-4
    assert not config.normalize_observations
    assert not config.normalize_rewards
    if name == "default":
        assert config.dice == DiceConfig(encoder="shared")
        assert config.block_length == 8
        return
    assert (config.dice.discriminator_steps, config.dice.learning_rate_factor) == (5, 10)
    assert config.dice.policy_gradient == "score-printed"


def test_only_ppo_dice_has_the_tuned_preset():
    with pytest.raises(UserError, match="There is no preset 'paper-tuned' for ppo; known are: default"):
        preset("ppo", "Hopper-v5", "paper-tuned")
