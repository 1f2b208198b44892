import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ppo_dice.distributions import (
    IMPOSSIBLE,
    Categorical,
    DiagonalGaussian,
    gaussian_noise,
    gumbel_noise,
    kl_divergence,
)

vectors = arrays(np.float32, 3, elements=st.floats(-2, 2, width=32, allow_subnormal=False))
logits = arrays(np.float32, (2, 3), elements=st.floats(-4, 4, width=32, allow_subnormal=False))


@given(vectors, vectors, vectors)
def test_gaussian_against_scipy(mean, log_std, action):
    ours = DiagonalGaussian(jnp.asarray(mean), jnp.asarray(log_std))
    theirs = scipy.stats.norm(mean.astype(float), np.exp(log_std.astype(float)))
    assert float(ours.log_prob(jnp.asarray(action))) == pytest.approx(
        theirs.logpdf(action).sum(), rel=1e-4, abs=1e-4
    )
    assert float(ours.entropy()) == pytest.approx(theirs.entropy().sum(), rel=1e-4, abs=1e-4)


@given(vectors, vectors, vectors, vectors)
def test_gaussian_kl_against_quadrature(mean, log_std, other_mean, other_log_std):
    p = DiagonalGaussian(jnp.asarray(mean), jnp.asarray(log_std))
    q = DiagonalGaussian(jnp.asarray(other_mean), jnp.asarray(other_log_std))
    expected = 0.0
    for m, s, m2, s2 in zip(*(x.astype(float) for x in (mean, log_std, other_mean, other_log_std))):
        # Gauss–Hermite is exact here: the integrand is a quadratic.
        nodes, weights = np.polynomial.hermite_e.hermegauss(8)
        x = m + np.exp(s) * nodes
        difference = scipy.stats.norm.logpdf(x, m, np.exp(s)) - scipy.stats.norm.logpdf(x, m2, np.exp(s2))
        expected += (weights * difference).sum() / weights.sum()
    assert float(kl_divergence(p, q)) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@given(logits, logits)
def test_categorical_against_sums(first, second):
    p, q = Categorical(jnp.asarray(first)), Categorical(jnp.asarray(second))
    probs = np.exp(first.astype(float)) / np.exp(first.astype(float)).sum(-1, keepdims=True)
    others = np.exp(second.astype(float)) / np.exp(second.astype(float)).sum(-1, keepdims=True)
    assert float(p.entropy()) == pytest.approx(-(probs * np.log(probs)).sum(), rel=1e-4, abs=1e-4)
    assert float(kl_divergence(p, q)) == pytest.approx(
        (probs * np.log(probs / others)).sum(), rel=1e-3, abs=1e-4
    )
    assert float(p.log_prob(jnp.array([2, 0]))) == pytest.approx(
        np.log(probs[0, 2] * probs[1, 0]), rel=1e-4, abs=1e-4
    )
    np.testing.assert_array_equal(p.mode(), first.argmax(-1))


def test_a_policy_has_no_divergence_from_itself():
    p = DiagonalGaussian(jnp.array([0.3, -1.0]), jnp.array([0.1, -0.4]))
    c = Categorical(jnp.array([[0.3, -1.0]]))
    assert float(kl_divergence(p, p)) == 0
    assert float(kl_divergence(c, c)) == 0


def test_padded_categories_never_happen_and_leave_gradients_finite():
    padded = jnp.array([[0.2, -0.3, IMPOSSIBLE], [1.0, 0.0, 0.5]])

    def everything(logits):
        d = Categorical(logits)
        return d.entropy() + d.log_prob(jnp.array([1, 2])) + d.kl_divergence(Categorical(2 * logits))

    value, gradient = jax.value_and_grad(everything)(padded)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    two = Categorical(padded[:1, :2])
    assert float(Categorical(padded[:1]).entropy()) == pytest.approx(float(two.entropy()))
    noise = gumbel_noise(jax.random.key(0), (2000, 2, 3))
    drawn = jax.vmap(Categorical(padded).sample)(noise)
    assert int(drawn[:, 0].max()) == 1


def test_samples_follow_the_distribution():
    # 20,000 draws: the largest deviation of a frequency has SD √(.25/20000) = .0035; .02 is 5.6 of them.
    d = Categorical(jnp.array([[0.0, 1.0, -1.0]]))
    drawn = jax.vmap(d.sample)(gumbel_noise(jax.random.key(1), (20_000, 1, 3)))[:, 0]
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 20_000, d.probs[0], atol=0.02)

    g = DiagonalGaussian(jnp.array([1.0]), jnp.array([-0.5]))
    drawn = jax.vmap(g.sample)(gaussian_noise(jax.random.key(2), (20_000, 1)))[:, 0]
    assert scipy.stats.kstest(drawn, scipy.stats.norm(1.0, np.exp(-0.5)).cdf).pvalue > 1e-4
