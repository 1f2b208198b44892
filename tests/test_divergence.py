"""The functions of arrays against the exact laboratory, in float64; rows are all (s, a), weighted by μ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice.divergence import (
    DIVERGENCES,
    density_ratio,
    difference_form,
    extended,
    gap,
    get_divergence,
    paper_form,
    saddle_form,
)
from ppo_dice.errors import UserError
from ppo_dice.tabular import garnet, random_policy

ORDERS = {"alpha": [{"order": order} for order in (-0.5, 0.5, 1.5)]}
CASES = [(name, parameters) for name in DIVERGENCES for parameters in ORDERS.get(name, [{}])]


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def make(name, seed=0, **parameters):
    mdp = garnet(6, 3, 3, 0.9, seed)
    old, other = (0.1 / 3 + 0.9 * random_policy(mdp, place) for place in (1, 2))
    return mdp.objective(0.7 * old + 0.3 * other, old, name, **parameters)


def rows(objective, g):
    """Change, residual and weight of every (s, a), and the initial term, as a rollout would give them."""
    change = (objective.pi_new * g).sum(-1) - (objective.pi_old * g).sum(-1)
    arrays = (np.repeat(change, g.shape[1]), objective.residual(g).ravel(), objective.old.mu.ravel())
    return tuple(map(jnp.asarray, arrays)), jnp.asarray(objective.initial_term(g))


@pytest.mark.parametrize("name", DIVERGENCES)
def test_both_forms_are_those_of_the_laboratory(name):
    objective = make(name)
    g = 0.1 * np.random.default_rng(0).standard_normal(objective.pi_new.shape)  # inside every domain
    (change, residual, weight), initial = rows(objective, g)
    divergence = objective.divergence
    for shift in (True, False):
        if shift and name == "chi2":
            continue  # its closed gap is that of φ on all of ℝ; see the registry's tests
        difference = difference_form(divergence, change, residual, weight, shift=shift)
        np.testing.assert_allclose(difference, objective.difference(g, shift=shift), atol=1e-9)
        paper = paper_form(divergence, initial, residual, weight, shift=shift)
        np.testing.assert_allclose(paper, objective.paper(g, shift=shift), atol=1e-9)
        np.testing.assert_allclose(paper, difference, atol=1e-9)  # the difference identity


@pytest.mark.parametrize("name", DIVERGENCES)
def test_every_form_reaches_the_divergence_at_the_optimal_g_whatever_its_level(name):
    objective = make(name)
    g = objective.optimum()
    for level in (0.0, 5.0):
        (change, residual, weight), initial = rows(objective, g + level)
        forms = (
            difference_form(objective.divergence, change, residual, weight),
            paper_form(objective.divergence, initial, residual, weight),
        )
        np.testing.assert_allclose(forms, objective.exact, atol=1e-9)
    (change, residual, weight), _ = rows(objective, g)
    ratio = (objective.new.mu / objective.old.mu).ravel()
    saddle = saddle_form(objective.divergence, change, residual, jnp.asarray(ratio), weight)
    np.testing.assert_allclose(saddle, objective.exact, atol=1e-9)
    if name != "tv":  # whose slope does not tell the ratio
        found = density_ratio(objective.divergence, residual, weight)
        np.testing.assert_allclose(found, ratio, rtol=1e-6)
        np.testing.assert_allclose(jnp.sum(weight * found), 1, atol=1e-9)


def test_the_saddle_form_is_the_difference_form_at_the_ratio_of_the_residual_and_above_it_elsewhere():
    objective = make("kl")
    rng = np.random.default_rng(1)
    (change, residual, weight), _ = rows(objective, rng.standard_normal(objective.pi_new.shape))
    best = density_ratio(objective.divergence, residual, weight, shift=False)
    least = saddle_form(objective.divergence, change, residual, best, weight)
    np.testing.assert_allclose(
        least, difference_form(objective.divergence, change, residual, weight, shift=False), atol=1e-9
    )
    for _ in range(10):
        other = best * jnp.asarray(rng.uniform(0.5, 2, best.shape))
        assert saddle_form(objective.divergence, change, residual, other, weight) > least


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_an_extended_divergence_is_finite_everywhere_and_the_same_below_the_largest_ratio(name, parameters):
    plain = get_divergence(name, **parameters)
    smooth = extended(plain, largest_ratio=10.0)
    if plain.upper == jnp.inf:
        assert smooth is plain  # φ* is finite everywhere as it is
        return
    u = jnp.linspace(-3, 40, 2000)
    assert jnp.isfinite(smooth.conjugate(u)).all()
    assert jnp.isfinite(smooth.ratio(u)).all()
    slopes = jnp.diff(smooth.conjugate(u)) / jnp.diff(u)
    assert (jnp.diff(slopes) >= -1e-9).all()  # convex: no step down at the junction
    np.testing.assert_allclose(jax.vmap(jax.grad(smooth.conjugate))(u), smooth.ratio(u), atol=1e-9)
    t = jnp.linspace(0.1, 10, 100)
    if name == "tv":
        np.testing.assert_allclose(smooth.generator(t), plain.generator(t) + 0.05 * (t - 1) ** 2, atol=1e-9)
    else:
        np.testing.assert_allclose(smooth.generator(t), plain.generator(t), atol=1e-9)
    # Beyond the junction φ grows like t², and is what the extended φ* is the conjugate of.
    grid = jnp.linspace(1e-9, 2000, 400_001)
    for residual in smooth.slope(jnp.array([3.0, 15.0, 200.0])):
        brute = jnp.max(residual * grid - smooth.generator(grid))
        np.testing.assert_allclose(smooth.conjugate(residual), brute, rtol=1e-4)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_rows_without_weight_change_nothing(name):
    objective = make(name)
    (_, residual, weight), _ = rows(objective, objective.optimum())
    padded = jnp.append(residual, 1e6), jnp.append(weight, 0.0)
    assert gap(objective.divergence, *padded) == pytest.approx(
        float(gap(objective.divergence, residual, weight)), abs=1e-12
    )


@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_gradient_of_the_gap_is_the_finite_difference(name):
    rng = np.random.default_rng(2)
    residual, weight = jnp.asarray(rng.normal(size=20)), jnp.asarray(rng.dirichlet(np.ones(20)))
    divergence = extended(get_divergence(name))
    direction = jnp.asarray(rng.normal(size=20))
    slope = jax.grad(lambda x: gap(divergence, x, weight))(residual) @ direction
    step = 1e-5
    rise = gap(divergence, residual + step * direction, weight) - gap(
        divergence, residual - step * direction, weight
    )
    assert slope == pytest.approx(float(rise / (2 * step)), rel=1e-4, abs=1e-6)


def test_unknown_names_and_orders_are_refused():
    with pytest.raises(UserError, match="no divergence 'kl2'; known are: kl, "):
        get_divergence("kl2")
    with pytest.raises(UserError, match="alpha must be a number other than 0"):
        get_divergence("alpha", order=1.0)
