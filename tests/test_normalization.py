import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_dice.normalization import empty_moments, init_normalizer, normalize, scale, update_moments


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(-50, 50), st.integers(0, 99))
def test_batches_taken_in_one_by_one_give_the_moments_of_the_whole(sizes, offset, seed):
    rng = np.random.default_rng(seed)
    batches = [(rng.normal(offset, 2, (size, 3))).astype(np.float32) for size in sizes]
    moments = empty_moments((3,))
    for batch in batches:
        moments = update_moments(moments, jnp.asarray(batch))
    whole = np.concatenate(batches).astype(np.float64)
    assert float(moments.count) == len(whole)
    np.testing.assert_allclose(moments.mean, whole.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(moments.variance, whole.var(0), rtol=1e-3, atol=1e-3)


def test_float32_moments_survive_a_million_rows():
    rng = np.random.default_rng(0)
    moments = empty_moments((1,))
    for _ in range(500):
        moments = update_moments(moments, jnp.asarray(rng.normal(3, 0.5, (2000, 1)).astype(np.float32)))
    assert float(moments.mean[0]) == pytest.approx(3, abs=5e-3)
    assert float(moments.variance[0]) == pytest.approx(0.25, rel=1e-2)


def test_what_has_seen_nothing_changes_nothing():
    value = jnp.array([3.0, -1e4])
    np.testing.assert_array_equal(init_normalizer(2, jnp.inf)(value), value)


def test_normalize_clips_and_scale_does_not_centre():
    moments = update_moments(empty_moments((1,)), jnp.array([[0.0], [4.0]]))  # mean 2, SD 2
    assert float(normalize(moments, jnp.array([5.0]), jnp.float32(10))[0]) == pytest.approx(1.5)
    assert float(normalize(moments, jnp.array([99.0]), jnp.float32(10))[0]) == 10
    assert float(scale(moments, jnp.array([5.0]), jnp.float32(10))[0]) == pytest.approx(2.5)
