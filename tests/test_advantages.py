import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from ppo_dice import advantages

STEPS = 12
floats = arrays(np.float32, STEPS, elements=st.floats(-5, 5, width=32, allow_subnormal=False))
flags = arrays(np.bool_, STEPS)
gae, discounted_returns_so_far, standardize, explained_variance = map(
    jax.jit,
    (
        advantages.gae,
        advantages.discounted_returns_so_far,
        advantages.standardize,
        advantages.explained_variance,
    ),
)


@given(floats, floats, floats, flags, flags, st.floats(0, 0.99), st.floats(0, 1))
def test_gae_equals_the_plain_loop(reward, value, next_value, terminated, truncated, gamma, lam):
    ended = terminated | truncated
    expected, advantage = np.zeros(STEPS), 0.0
    for t in reversed(range(STEPS)):
        bootstrap = 0.0 if terminated[t] else gamma * next_value[t]
        delta = reward[t] + bootstrap - value[t]
        advantage = delta + (0.0 if ended[t] else gamma * lam * advantage)
        expected[t] = advantage
    result = gae(reward, value, next_value, terminated, ended, np.float32(gamma), np.float32(lam))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_gae_by_hand():
    # γ = .5, λ = 1: step 2 terminates, so Â₂ = 4 − 1 = 3; Â₁ = (2 + .5·1 − 1) + .5·3 = 3;
    # Â₀ = (0 + .5·1 − 1) + .5·3 = 1.
    nothing = np.zeros(3, bool)
    last = np.array([False, False, True])
    ones = np.ones(3, np.float32)
    reward = np.array([0, 2, 4], np.float32)
    np.testing.assert_allclose(gae(reward, ones, ones, last, last, 0.5, 1.0), [1, 3, 3])
    # Cut off instead of terminated: Â₂ = 4 + .5·1 − 1 = 3.5, and .5, .25 of the difference travel back.
    np.testing.assert_allclose(gae(reward, ones, ones, nothing, last, 0.5, 1.0), [1.125, 3.25, 3.5])


def test_the_endless_environment_is_worth_one_over_one_minus_gamma():
    gamma = 0.9
    worth = np.full(STEPS, 1 / (1 - gamma), np.float32)
    nothing = np.zeros(STEPS, bool)
    advantage = gae(np.ones(STEPS, np.float32), worth, worth, nothing, nothing, gamma, 0.95)
    np.testing.assert_allclose(advantage, 0, atol=1e-5)


@given(floats, flags, st.floats(-3, 3, width=32), st.floats(0, 0.99))
def test_returns_so_far_equal_the_plain_loop(reward, ended, before, gamma):
    expected, running = [], float(before)
    for t in range(STEPS):
        running = reward[t] + gamma * running
        expected.append(running)
        running *= 0.0 if ended[t] else 1.0
    result, carried = discounted_returns_so_far(reward, ended, np.float32(before), np.float32(gamma))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert float(carried) == pytest.approx(running, rel=1e-4, abs=1e-4)


def test_standardize():
    result = standardize(np.array([1.0, 2.0, 3.0, 6.0], np.float32))
    assert float(result.mean()) == pytest.approx(0, abs=1e-6)
    assert float(result.std()) == pytest.approx(1, rel=1e-6)


def test_explained_variance_of_a_perfect_and_of_a_constant_prediction():
    target = np.array([1.0, 2.0, 3.0], np.float32)
    assert float(explained_variance(target, target)) == pytest.approx(1)
    assert float(explained_variance(np.full(3, 7.0, np.float32), target)) == pytest.approx(0, abs=1e-6)
