import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ppo_dice import PPO
from ppo_dice.envs.gymnasium_backend import GymnasiumEnvironments
from ppo_dice.errors import UserError
from ppo_dice.rollout import collect, start
from ppo_dice.tabular import LinearGaussian, LinearPolicy

SYSTEM = LinearGaussian(a=0.9, b=0.5, noise=0.3, gamma=0.9)
OLD = (-0.3, 0.0, 0.5)
NEW = (-0.4, 0.15, 0.45)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": -0.1}, "noise is a standard deviation and must not be negative, but is -0.1"),
        ({"a": float("nan")}, "a must be a finite number, but is nan"),
        ({"gamma": 1.0}, r"gamma must be in \[0, 1\), but is 1.0"),
        ({"b": 0.0, "noise": 0.0}, "b and noise must not both be zero"),
    ],
)
def test_a_bad_system_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        LinearGaussian(**({"a": 0.9, "b": 0.5, "noise": 0.3, "gamma": 0.9} | changes))


def test_unstable_and_impossible_policies_are_refused():
    with pytest.raises(UserError, match=r"unstable: \|a \+ b·K\| = 1 must be below 1"):
        SYSTEM.stationary((0.2, 0.0, 0.5))
    with pytest.raises(UserError, match="unstable"):
        SYSTEM.divergence(new=(-4.0, 0.0, 0.5), old=OLD)
    with pytest.raises(UserError, match="sigma > 0"):
        SYSTEM.divergence(new=(-0.3, 0.0, 0.0), old=OLD)
    with pytest.raises(UserError, match="of finite numbers"):
        SYSTEM.sample((float("nan"), 0, 1), 1, jax.random.key(0))
    with pytest.raises(UserError, match="steps must be at least 1"):
        SYSTEM.sample(OLD, 0, jax.random.key(0))


def test_the_published_numbers():
    small, large = (SYSTEM.divergence(new=new, old=OLD) for new in ((-0.33, 0.03, 0.49), NEW))
    assert small == pytest.approx((0.00560, 0.00294, 0.00266), abs=5e-6)
    assert large.total == pytest.approx(0.10535, abs=5e-6)
    assert large.total == large.state + large.action
    assert SYSTEM.divergence(new=OLD, old=OLD) == pytest.approx((0, 0, 0), abs=1e-12)


def test_the_quadrature_agrees_with_a_direct_sum_of_every_component():
    for gamma in (0.0, 0.5, 0.9, 0.99):
        system = LinearGaussian(0.9, 0.5, 0.3, gamma)
        mixture = system.visitation(NEW, OLD)
        assert mixture.weight.sum() == pytest.approx(1, abs=1e-12)
        grid = np.linspace(-8, 8, 20_001)
        (mean, std), density = system.stationary(OLD), np.zeros(20_001)
        old_density = np.exp(-(((grid - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
        variance = std**2
        for k in range(3000):  # one step of the dynamics after the other
            new_density = np.exp(-((grid - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
            density += (1 - gamma) * gamma**k * new_density
            if gamma**k < 1e-18:
                break
            factor = 0.9 + 0.5 * NEW[0]
            mean = factor * mean + 0.5 * NEW[1]
            variance = factor**2 * variance + 0.25 * NEW[2] ** 2 + 0.09
        np.testing.assert_allclose(np.exp(mixture.log_density(grid)), density, atol=1e-12)
        inside = (density > 1e-300) & (old_density > 1e-300)
        log_ratio = np.log(density[inside] / old_density[inside])
        state = np.trapezoid(density[inside] * log_ratio, grid[inside])
        gap = (NEW[0] - OLD[0]) * grid + NEW[1] - OLD[1]
        per_state = np.log(OLD[2] / NEW[2]) + (NEW[2] ** 2 + gap**2) / (2 * OLD[2] ** 2) - 0.5
        action = np.trapezoid(density * per_state, grid)
        parts = system.divergence(NEW, OLD)
        assert parts.state == pytest.approx(state, abs=1e-9)
        assert parts.action == pytest.approx(action, abs=1e-9)
        # The sandwich: E_{d'}KL(π'‖π) ≤ KL(μ'‖μ) ≤ the same over 1 − γ.
        assert parts.action <= parts.total + 1e-12
        assert parts.total <= parts.action / (1 - gamma) + 1e-12


def test_the_quadrature_sees_the_narrowest_of_components_that_are_thousands_of_times_wider():
    # π all but lets the state drift, π' stops it at once (a + bK = 0): half of d' is π's own N(0, w²) and
    # half N(0, v²), w/v = 3162 times narrower. d'/d is ½ outside and about ½w/v·exp(−s²/2v²) inside:
    # KL = ½·(log(½w/v) − ½) + ½·log ½ = 3.087, but for what both have in the middle.
    system, (new, old) = LinearGaussian(0.9, 0.5, 0.3, 0.5), ((-1.8, 0, 0.5), (0.1999999, 0, 0.5))
    ratio = system.stationary(old).std / system.stationary(new).std
    assert ratio == pytest.approx(3162, abs=1)
    expected = 0.5 * (np.log(ratio / 2) - 0.5) + 0.5 * np.log(0.5)
    assert system.divergence(new, old).state == pytest.approx(expected, abs=0.01)


def test_without_noise_of_its_own_the_system_is_moved_by_the_actions():
    system = LinearGaussian(a=0.5, b=1.0, noise=0.0, gamma=0.9)
    assert system.stationary((0.0, 1.0, 3**0.5)) == pytest.approx((2.0, 2.0))
    assert system.divergence(new=LinearPolicy(0.1, 0, 1), old=LinearPolicy(0, 0, 1)).total > 0


def test_a_sampled_rollout_is_stationary_obeys_the_dynamics_and_has_the_contracts_shape():
    rollout = SYSTEM.sample(NEW, 60, jax.random.key(0), n_envs=4000, max_episode_steps=7)
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in vars(rollout).items()} == {
        "obs": ((61, 4000, 1), np.float32),
        "final_obs": ((60, 4000, 1), np.float32),
        "action": ((60, 4000, 1), np.float32),
        "reward": ((60, 4000), np.float32),
        "terminated": ((60, 4000), bool),
        "truncated": ((60, 4000), bool),
        "elapsed": ((60, 4000), np.int32),
    }
    mean, std = SYSTEM.stationary(NEW)
    for obs in rollout.obs[..., 0]:  # at every step, also right after a restart
        assert obs.mean() == pytest.approx(mean, abs=5 * std / np.sqrt(4000))
        assert obs.std() == pytest.approx(std, rel=0.06)
    state, action = rollout.obs[:-1, :, 0], rollout.action[..., 0]
    deviation = (action - NEW[0] * state - NEW[1]) / NEW[2]
    assert deviation.mean() == pytest.approx(0, abs=0.011)
    assert deviation.std() == pytest.approx(1, rel=0.01)
    after = np.where(rollout.truncated, rollout.final_obs[..., 0], rollout.obs[1:, :, 0])
    noise = (after - 0.9 * state - 0.5 * action) / 0.3
    assert noise.mean() == pytest.approx(0, abs=0.011)
    assert noise.std() == pytest.approx(1, rel=0.01)
    assert np.corrcoef(noise.ravel(), deviation.ravel())[0, 1] == pytest.approx(0, abs=0.01)
    np.testing.assert_array_equal(rollout.elapsed[:, 0], np.arange(60) % 7)
    np.testing.assert_array_equal(rollout.truncated, rollout.elapsed == 6)
    np.testing.assert_array_equal(rollout.final_obs[..., 0] != 0, rollout.truncated)
    assert not rollout.terminated.any()
    np.testing.assert_allclose(rollout.reward, -np.minimum(state**2 + action**2 / 10, 10), rtol=1e-5)
    endless = SYSTEM.sample(NEW, 9, jax.random.key(0))
    assert not endless.truncated.any()
    assert endless.elapsed[-1, 0] == 8


def test_it_is_a_gymnasium_environment_with_the_same_dynamics():
    env = SYSTEM.copy()
    with pytest.raises(UserError, match="Call reset before the first step"):
        env.step(np.zeros(1, np.float32))
    with pytest.warns(UserWarning, match="infinity|symmetric"):  # a linear system has no bounds
        check_env(env, skip_render_check=True)
    make = lambda: gymnasium.wrappers.TimeLimit(SYSTEM.copy(), 50)
    envs = GymnasiumEnvironments(make, list(range(20)))
    rng = np.random.default_rng(0)
    choose = lambda obs, t: (12 * rng.standard_normal(obs.shape)).astype(np.float32)
    rollout = collect(envs, start(envs), choose, 200, (0,)).rollout
    state, action = rollout.obs[0, :-1, :, 0], np.clip(rollout.action[0, ..., 0], -10, 10)
    after = np.where(rollout.truncated[0], rollout.final_obs[0, ..., 0], rollout.obs[0, 1:, :, 0])
    noise = (after - 0.9 * state - 0.5 * action) / 0.3
    assert noise.std() == pytest.approx(1, rel=0.06)
    assert noise.mean() == pytest.approx(0, abs=5 / np.sqrt(4000))
    expected = -np.minimum(state**2 + action**2 / 10, 10)
    np.testing.assert_allclose(rollout.reward[0], expected, rtol=1e-4, atol=1e-4)
    assert rollout.reward.min() == -10


def test_ppo_learns_on_it():
    # The state decays slowly and costs its square, actions are cheap: push it back.
    make = lambda: gymnasium.wrappers.TimeLimit(SYSTEM.copy(), 50)
    agent = PPO(make, n_envs=4, n_steps=64, n_minibatches=4, learning_rate=3e-3, gamma=0.9, workers=0)
    agent.learn(256 * 16)
    left, right = (agent.predict(np.full(1, state, np.float32), deterministic=True)[0] for state in (-2, 2))
    assert left > 0 > right
