"""The fit of a linear g against its closed forms and against its own optimality condition, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice.chains import Rows
from ppo_dice.divergence import DIVERGENCES, extended, gap, get_divergence
from ppo_dice.linear_discriminator import conditional_mean, evaluate_linear, fit_linear

RIDGE = 0.05


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def random_rows(seed=0, n_rows=60, n_features=4):
    rng = np.random.default_rng(seed)
    change, residual = rng.normal(size=(2, n_rows, n_features))
    weight, initial = rng.dirichlet(np.ones(n_rows)), rng.normal(size=n_features)
    return Rows(*map(jnp.asarray, (0.3 * change, residual, weight, initial)))


def test_the_fit_of_chi2_is_the_solution_of_its_linear_equations():
    rows = random_rows()
    weight, residual = np.asarray(rows.weight), np.asarray(rows.residual)
    b = weight @ np.asarray(rows.change)
    centred = residual - weight @ residual
    covariance = (weight[:, None] * centred).T @ centred
    omega = 2 * np.linalg.solve(covariance + RIDGE * np.eye(4), b)
    fit = fit_linear(get_divergence("chi2"), rows, RIDGE)
    np.testing.assert_allclose(fit.weights, omega, rtol=1e-9)
    np.testing.assert_allclose(fit.value, omega @ b - omega @ covariance @ omega / 4, rtol=1e-9)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_at_the_fit_no_direction_leads_higher(name):
    divergence = extended(get_divergence(name))
    for form in ("difference", "paper"):
        rows = random_rows(seed=1)
        rows = rows._replace(initial=rows.weight @ rows.residual + 0.1 * rows.initial)
        fit = fit_linear(divergence, rows, RIDGE, form=form)
        one = jax.grad(divergence.ratio)(divergence.slope(jnp.ones(())) if name != "tv" else jnp.ones(()))
        penalty = RIDGE * (0.5 if name == "tv" else float(one))

        def objective(omega, rows=rows, form=form, penalty=penalty):
            value = evaluate_linear(divergence, rows, omega, form=form)
            return value - 0.5 * penalty * omega @ omega

        steps = np.random.default_rng(2).normal(size=(4, 20, 4)) * np.logspace(-3, 0, 4)[:, None, None]
        elsewhere = fit.weights[None] + jnp.asarray(steps.reshape(-1, 4))
        assert jax.jit(jax.vmap(objective))(elsewhere).max() <= objective(fit.weights) + 1e-9
        assert fit.value == pytest.approx(float(evaluate_linear(divergence, rows, fit.weights, form=form)))


def test_a_linear_g_is_worth_its_linear_term_less_its_gap():
    rows, omega = random_rows(), jnp.asarray([0.1, -0.2, 0.3, 0.0])
    loss = gap(get_divergence("kl"), rows.residual @ omega, rows.weight)
    change = rows.weight @ rows.change @ omega
    assert evaluate_linear(get_divergence("kl"), rows, omega) == pytest.approx(float(change - loss))


def test_the_conditional_mean_of_a_linear_function_is_that_function_whatever_rows_without_weight_say():
    rng = np.random.default_rng(3)
    features, slope = rng.normal(size=(50, 3)), rng.normal(size=(3, 2))
    exact = features @ slope + np.array([[5.0, -1.0]])
    weight = np.append(rng.uniform(0.5, 1.5, 40), np.zeros(10))
    noisy = exact + 100 * (weight == 0)[:, None]
    found = conditional_mean(*map(jnp.asarray, (features, noisy, weight)), 1e-12)
    np.testing.assert_allclose(found, exact, atol=1e-8)


def test_the_conditional_mean_averages_the_noise_of_rows_with_the_same_features():
    features = jnp.asarray([[0.0], [0.0], [1.0], [1.0]])
    target, weight = jnp.asarray([[1.0], [4.0], [10.0], [20.0]]), jnp.asarray([1.0, 2.0, 1.0, 1.0])
    found = conditional_mean(features, target, weight, 1e-12)
    np.testing.assert_allclose(found[:, 0], [3, 3, 15, 15], rtol=1e-9)
