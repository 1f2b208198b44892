import dataclasses
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import ppo_dice
from ppo_dice.algorithms import algorithm_names, config_class, get_algorithm, register
from ppo_dice.config import PPOConfig, RunConfig, check_types
from ppo_dice.errors import UserError
from ppo_dice.types import traced_config

SOURCE = Path(ppo_dice.__file__).parent
CONFIGS = [RunConfig, *map(config_class, algorithm_names())]


@pytest.mark.parametrize("cls", CONFIGS)
def test_every_field_is_read_somewhere(cls):
    code = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "config.py")
    properties = re.findall(
        r"    (?:@property|def annealed).*?(?=\n    def _|\n\n\n)", (SOURCE / "config.py").read_text(), re.S
    )
    code += "\n".join(properties)  # they derive what others read
    for field in dataclasses.fields(cls):
        assert re.search(rf"(config|run|self|in_force)\.{field.name}\b", code), f"nobody reads {field.name}"


@pytest.mark.parametrize("cls", CONFIGS)
def test_every_field_has_a_sentence(cls):
    lines = (SOURCE / "config.py").read_text().splitlines()
    for field in dataclasses.fields(cls):
        place = next(i for i, line in enumerate(lines) if line.startswith(f"    {field.name}: "))
        assert re.fullmatch(r'    """[A-Z].*[^.…](\.|…)"""', lines[place + 1]), field.name


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_minibatches": 7}, "n_minibatches must be a divisor of n_envs · n_steps = 2048, but is 7."),
        ({"n_steps": 0}, "n_steps must be at least 1, but is 0."),
        ({"n_envs": -1}, "n_envs must be at least 1, but is -1."),
        ({"gamma": 1.0}, "gamma must be in [0, 1), but is 1.0."),
        ({"gae_lambda": 1.5}, "gae_lambda must be in [0, 1], but is 1.5."),
        ({"learning_rate": -1e-3}, "learning_rate must be a finite number ≥ 0, but is -0.001."),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number ≥ 0, but is nan."),
        ({"clip_range": 0.0}, "clip_range must be a number > 0, but is 0.0."),
        ({"target_kl": 0.0}, "target_kl must be a number > 0, or None, but is 0.0."),
        ({"hidden_sizes": (64, 0)}, "hidden_sizes must be sizes ≥ 1, but is (64, 0)."),
        ({"n_steps": 1, "n_minibatches": 1}, "n_envs · n_steps must be at least 2 when advantages"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(settings, sentence):
    with pytest.raises(UserError, match="^" + re.escape(sentence)):
        PPOConfig(**settings)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("surrogate", "clip", "surrogate must be Literal['clipped', 'unclipped'], but is 'clip'."),
        ("n_steps", 2.5, "n_steps must be int, but is 2.5."),
        ("n_steps", True, "n_steps must be int, but is True."),
        ("gamma", True, "gamma must be float, but is True."),
        ("gamma", "high", "gamma must be float, but is 'high'."),
        ("normalize_rewards", 1, "normalize_rewards must be bool, but is 1."),
        ("target_kl", "low", "target_kl must be float | None, but is 'low'."),
        ("hidden_sizes", (64, "64"), "hidden_sizes must be tuple[int, ...], but is (64, '64')."),
    ],
)
def test_values_of_the_wrong_type_are_refused(field, value, sentence):
    config = PPOConfig()
    object.__setattr__(config, field, value)  # the constructor is type-checked in tests, but not for users
    with pytest.raises(UserError, match="^" + re.escape(sentence)):
        check_types(config)


@pytest.mark.parametrize(
    ("field", "value", "plain"),
    [
        ("n_steps", np.int64(64), 64),
        ("gamma", np.float32(0.5), 0.5),
        ("gamma", np.int32(0), 0),
        ("target_kl", np.float64(0.25), 0.25),
        ("hidden_sizes", (np.uint8(8), 4), (8, 4)),
    ],
)
def test_numbers_of_numpy_become_numbers_of_python(field, value, plain):
    config = PPOConfig()
    object.__setattr__(config, field, value)
    check_types(config)
    assert getattr(config, field) == plain
    assert json.loads(json.dumps(dataclasses.asdict(config)))[field] == (
        list(plain) if isinstance(plain, tuple) else plain
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"seeds": 0},
        {"seed": -1},
        {"total_timesteps": 0},
        {"workers": -1},
        {"seed": 2**31},
        {"seeds": 2, "seed": 2**31 - 1},
    ],
)
def test_bad_runs_are_refused(settings):
    with pytest.raises(UserError, match=next(iter(settings))):
        RunConfig(**settings)


def test_a_float_is_traced_and_all_else_is_structure():
    get_algorithm("ppo")  # makes its config a tree
    leaves, structure = jax.tree.flatten(traced_config(PPOConfig()))
    floats = [
        f.name for f in dataclasses.fields(PPOConfig) if isinstance(getattr(PPOConfig(), f.name), float)
    ]
    assert len(leaves) == len(floats)
    assert all(leaf.dtype == np.float32 for leaf in leaves)
    same = jax.tree.flatten(traced_config(PPOConfig(learning_rate=0.5)))[1]
    other = jax.tree.flatten(traced_config(PPOConfig(n_epochs=1)))[1]
    assert structure == same
    assert structure != other


def test_annealing():
    config = PPOConfig(learning_rate=1.0, clip_range_schedule="linear", clip_range=0.2)
    assert config.annealed(0.0) == config
    assert config.annealed(0.75).learning_rate == 0.25
    assert config.annealed(0.75).clip_range == pytest.approx(0.05)
    constant = PPOConfig(learning_rate=1.0, learning_rate_schedule="constant")
    assert constant.annealed(0.75) == constant


def test_a_third_party_can_register_an_algorithm():
    with pytest.raises(UserError, match="There is no algorithm 'mine'; known are: "):
        config_class("mine")
    register("mine", PPOConfig, "ppo_dice.algorithms.ppo")
    try:
        assert get_algorithm("mine").config is PPOConfig
    finally:
        from ppo_dice import algorithms

        del algorithms._registry["mine"]
