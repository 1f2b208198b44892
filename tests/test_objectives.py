import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ppo_dice import objectives

surrogate, clipped_surrogate, clip_fraction, approximate_kl, value_loss = map(
    jax.jit,
    (
        objectives.surrogate,
        objectives.clipped_surrogate,
        objectives.clip_fraction,
        objectives.approximate_kl,
        objectives.value_loss,
    ),
)
small = arrays(np.float32, 9, elements=st.floats(-2, 2, width=32, allow_subnormal=False))


@given(small, small, st.floats(0.05, 0.5))
def test_surrogates_equal_the_plain_loop(log_ratio, advantage, clip):
    plain, clipped = 0.0, 0.0
    for x, a in zip(log_ratio.astype(float), advantage.astype(float)):
        ratio = np.exp(x)
        plain += ratio * a / 9
        clipped += min(ratio * a, min(max(ratio, 1 - clip), 1 + clip) * a) / 9
    assert float(surrogate(log_ratio, advantage)) == pytest.approx(plain, rel=1e-4, abs=1e-4)
    assert float(clipped_surrogate(log_ratio, advantage, clip)) == pytest.approx(clipped, rel=1e-4, abs=1e-4)


def test_clipping_by_hand():
    # Ratios 2 and ½, advantage ±1, ε = .2: min(2, 1.2) = 1.2; min(½, .8) = ½; min(−2, −1.2) = −2;
    # min(−½, −.8) = −.8. Their mean is −1.1/4.
    log_ratio = jnp.log(jnp.array([2.0, 0.5, 2.0, 0.5]))
    advantage = jnp.array([1.0, 1.0, -1.0, -1.0])
    assert float(clipped_surrogate(log_ratio, advantage, 0.2)) == pytest.approx(-1.1 / 4)
    assert float(clip_fraction(log_ratio, 0.2)) == 1
    assert float(clip_fraction(jnp.array([0.0, 0.1, -0.1, 0.5]), 0.2)) == 0.25


@given(small)
def test_the_estimate_of_kl_is_never_negative_and_zero_without_change(log_ratio):
    assert float(approximate_kl(log_ratio)) >= 0
    assert float(approximate_kl(np.zeros_like(log_ratio))) == 0


def test_the_estimate_of_kl_finds_the_kl_of_two_gaussians():
    # KL(N(0,1)‖N(.1,1)) = .1²/2 = .005, from 10⁵ actions of the first.
    x = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    log_ratio = jnp.asarray(-0.5 * (x - 0.1) ** 2 + 0.5 * x**2)
    assert float(approximate_kl(log_ratio)) == pytest.approx(0.005, rel=0.05)


def test_value_loss_is_the_mean_square():
    assert float(value_loss(jnp.array([1.0, 2.0]), jnp.array([0.0, 4.0]))) == pytest.approx(2.5)
