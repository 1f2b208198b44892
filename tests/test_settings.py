import pytest

from ppo_dice import DiceConfig, PPOConfig, PPODiceConfig
from ppo_dice.errors import UserError
from ppo_dice.settings import full_name, read_sweep, read_value, settings_by_option, value_text, with_settings

CONFIG = PPODiceConfig()


def test_every_setting_has_one_name():
    names = settings_by_option(CONFIG)
    assert names["gamma"] == 0.99
    assert names["dice.coefficient"] == 0.1
    assert "dice" not in names


@pytest.mark.parametrize("name", settings_by_option(CONFIG))
def test_every_default_is_read_back_from_its_text(name):
    default = settings_by_option(CONFIG)[name]
    value = read_value(CONFIG, name, value_text(default))
    assert (value, type(value)) == (default, type(default))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("learning_rate", "1e-3", 1e-3),
        ("n_steps", "2_048", 2048),
        ("max_grad_norm", "None", None),
        ("standardize_advantages", "False", False),
        ("hidden_sizes", "64x32", (64, 32)),
        ("dice.coefficient", "adaptive", "adaptive"),
        ("dice.coefficient", "0.5", 0.5),
    ],
)
def test_texts_are_read_as_the_field_says(name, text, value):
    assert read_value(CONFIG, name, text) == value


def test_settings_are_put_in_at_every_depth_and_checked_together():
    values = {"n_steps": 10, "n_minibatches": 5, "dice.coefficient": 0.5, "dice.hidden_sizes": [8]}
    config = with_settings(CONFIG, values)
    dice = DiceConfig(coefficient=0.5, hidden_sizes=(8,))
    assert config == PPODiceConfig(n_steps=10, n_minibatches=5, dice=dice)
    part = {"dice": DiceConfig(discriminator_steps=3), "dice.coefficient": 0.5}
    assert with_settings(CONFIG, part).dice == DiceConfig(discriminator_steps=3, coefficient=0.5)
    with pytest.raises(UserError, match="n_minibatches must be a divisor"):
        with_settings(CONFIG, {"n_steps": 10})


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda: full_name(CONFIG, "gama"), "PPODiceConfig has no setting gama; did you mean gamma?"),
        (lambda: full_name(CONFIG, "coefficient"), "did you mean dice.coefficient?"),
        (lambda: full_name(PPOConfig(), "dice.coefficient"), "PPOConfig has no setting dice.coefficient"),
        (lambda: full_name(CONFIG, "dice"), "has no setting dice"),
        (lambda: read_value(CONFIG, "n_steps", "1.5"), "n_steps must be a whole number, but is '1.5'."),
        (lambda: read_value(CONFIG, "max_grad_norm", "x"), "must be a number or None, but is 'x'."),
        (
            lambda: read_value(CONFIG, "dice.coefficient", "adaptiv"),
            "must be a number or adaptive or target, but is 'adaptiv'; did you mean adaptive?",
        ),
        (lambda: read_value(CONFIG, "hidden_sizes", "64,64"), "must be whole numbers such as 64x64"),
        (lambda: read_sweep(CONFIG, ["gamma"]), "--sweep takes NAME=VALUE,VALUE,…"),
        (lambda: read_sweep(CONFIG, ["gamma=0.9", "gamma=0.8"]), "gamma is swept twice"),
    ],
)
def test_a_mistake_gets_a_sentence(read, sentence):
    with pytest.raises(UserError) as caught:
        read()
    assert sentence in str(caught.value)


def test_a_sweep_is_read_with_dashes_too():
    texts = ["gae-lambda=0.9,0.95", "dice.coefficient=0.1,adaptive"]
    assert read_sweep(CONFIG, texts) == {"gae_lambda": [0.9, 0.95], "dice.coefficient": [0.1, "adaptive"]}
