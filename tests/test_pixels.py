"""Agents that read images: what they must solve, and what must not depend on how the images are read."""

from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from ppo_dice import PPO, PPODice, PPODiceConfig, UserError
from ppo_dice import discriminator as dice
from ppo_dice.algorithms import ppo
from ppo_dice.chains import transitions
from ppo_dice.config import PPOConfig
from ppo_dice.distributions import Categorical
from ppo_dice.types import Rollout

LENGTH = 8
SMALL_CNN = {"cnn_filters": (8,), "cnn_kernels": (3,), "cnn_strides": (2,), "cnn_features": 16}
QUICK = {"n_envs": 4, "n_steps": 32, "n_epochs": 4, "n_minibatches": 4, "learning_rate": 5e-3, "gamma": 0.5}
SETTINGS: dict[str, Any] = {**SMALL_CNN, **QUICK, "hidden_sizes": (), "learning_rate_schedule": "constant"}


class Dot(gymnasium.Env[Any, Any]):
    """A dot in an image; right is the side on which it is, or the other one where a number is negative."""

    action_space = Discrete(2)
    picture = Box(0, 255, (1, 7, 6), np.uint8)

    def __init__(self, signed: bool = False, broken: bool = False) -> None:
        self.signed, self.broken = signed, broken
        self.observation_space: Any = self.picture
        if signed:
            self.observation_space = Dict(picture=self.picture, sign=Box(-1, 1, (1,), np.float32))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def look(self) -> Any:
        picture = np.zeros(self.picture.shape, np.uint8)
        row, column, sign = self.np_random.integers([7, 6, 2])
        picture[0, row, column] = 255
        self.right = int((column >= 3) == (sign == 1 or not self.signed))
        value = np.nan if self.broken and self.t > 2 else 2.0 * sign - 1
        return {"picture": picture, "sign": np.float32([value])} if self.signed else picture

    def step(self, action: Any) -> Any:
        reward = float(action == self.right)
        self.t += 1
        return self.look(), reward, False, self.t == LENGTH, {}


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (PPO, {}),
        (PPODice, {"dice": {"hidden_sizes": (16,)}}),
        (PPODice, {"dice": {"encoder": "shared", "hidden_sizes": (16,)}, "block_length": 8}),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_every_seed_learns_from_images(algorithm: Any, settings: dict[str, Any]) -> None:
    agent = algorithm(Dot, seeds=2, workers=0, **SETTINGS, **settings).learn(4096)
    assert min(agent.evaluate(8).mean_by_seed.values()) > 0.95 * LENGTH


@pytest.mark.usefixtures("as_shipped")
def test_images_and_numbers_are_read_together() -> None:
    settings = {**SETTINGS, "hidden_sizes": (32,)}
    agent = PPO(partial(Dot, signed=True), workers=0, **settings).learn(16_384)
    assert agent.evaluate(8).mean > 0.9 * LENGTH  # either part alone leaves half of it


def test_a_number_beside_an_image_that_is_not_finite_is_refused() -> None:
    agent = PPO(partial(Dot, signed=True, broken=True), workers=0, **SETTINGS)
    with pytest.raises(UserError, match="an observation that is not finite"):
        agent.learn(256)


def test_a_model_of_images_is_saved_and_predicts_alike(tmp_path: Any) -> None:
    agent = PPO(partial(Dot, signed=True), workers=0, **SETTINGS).learn(128)
    again = PPO.load(agent.save(tmp_path / "model"), env=partial(Dot, signed=True))
    env = Dot(signed=True)
    observations = [env.reset(seed=k)[0] for k in range(5)]
    for observation in observations:
        ours, theirs = (one.predict(observation, deterministic=True) for one in (agent, again))
        assert ours == theirs


def test_without_weight_the_divergence_changes_nothing() -> None:
    plain = PPO(Dot, workers=0, **SETTINGS).learn(256)
    for encoder in ("own", "shared"):
        free = PPODice(Dot, workers=0, **SETTINGS, dice={"coefficient": 0.0, "encoder": encoder}).learn(256)
        ours, theirs = free.population.state.ppo.model, plain.population.state.model
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), ours, theirs)


def test_a_penalty_moves_the_policys_encoder_too() -> None:
    def kernel(**settings: Any) -> np.ndarray:
        agent = PPODice(Dot, workers=0, **SETTINGS, dice={"certificate": "off", **settings}).learn(128)
        return np.asarray(agent.population.state.ppo.model.policy.encoder.cnns[0].kernels[0])

    for encoder in ("own", "shared"):
        strong, none = (kernel(encoder=encoder, coefficient=weight) for weight in (10.0, 0.0))
        assert np.abs(strong - none).max() > 1e-4


def test_blocks_hold_consecutive_steps_of_one_copy() -> None:
    config = PPOConfig(n_envs=3, n_steps=8, n_epochs=2, n_minibatches=3, block_length=4)
    rows = ppo.shuffled_rows(jax.random.key(0), config)
    assert rows.shape == (2, 3, 8)
    for epoch in rows:
        assert sorted(epoch.ravel().tolist()) == list(range(24))
    steps = np.diff(rows.reshape(-1, 4), axis=1)
    assert (steps == config.n_envs).all()
    assert (np.asarray(rows).reshape(-1, 4)[:, 0] // 3 % 4 == 0).all()
    with pytest.raises(UserError, match="block_length must be a divisor of n_steps = 8"):
        PPOConfig(n_envs=3, n_steps=8, n_minibatches=3, block_length=3)


def test_successors_in_a_block_are_the_next_rows() -> None:
    n_steps, n_envs, length = 8, 3, 4
    rng = np.random.default_rng(0)
    rollout = Rollout(
        obs=rng.normal(size=(n_steps + 1, n_envs, 2)).astype(np.float32),
        final_obs=np.zeros((n_steps, n_envs, 2), np.float32),
        action=np.zeros((n_steps, n_envs, 1), np.int32),
        reward=np.zeros((n_steps, n_envs), np.float32),
        terminated=np.zeros((n_steps, n_envs), bool),
        truncated=np.zeros((n_steps, n_envs), bool),
        elapsed=np.zeros((n_steps, n_envs), np.int32),
    )
    steps = transitions(rollout, 0.9)
    config = PPODiceConfig(n_envs=n_envs, n_steps=n_steps, n_epochs=1, n_minibatches=3, block_length=length)
    rows = ppo.shuffled_rows(jax.random.key(0), config)[0, 0]
    old = jax.vmap(Categorical)(jnp.zeros((24, 1, 2)))
    whole = dice.DiceBatch(steps, old, old_next=None, initial_obs=None)
    apart, together = dice.take(whole, rows), dice.take(whole, rows, length)
    assert len(dice.all_states(apart)) == 16
    assert len(dice.all_states(together)) == 8 + 8 // length
    expected, found = (dice.in_states(dice.all_states(batch), batch) for batch in (apart, together))
    np.testing.assert_array_equal(expected.here, found.here)
    np.testing.assert_array_equal(expected.there, found.there)
