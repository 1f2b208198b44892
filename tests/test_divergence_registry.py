"""What makes an entry of the registry a divergence. A new entry is tested by being registered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice.divergence import DIVERGENCES, gap, get_divergence

ORDERS = {"alpha": [{"order": order} for order in (-0.5, 0.5, 1.5, 2.0)]}
CASES = [(name, parameters) for name in DIVERGENCES for parameters in ORDERS.get(name, [{}])]
RATIOS = np.array([0.02, 0.1, 0.4, 0.9, 1.0, 1.1, 1.7, 3.0, 8.0, 30.0])

pytestmark = pytest.mark.parametrize(
    ("name", "parameters"), CASES, ids=["-".join([name, *map(str, p.values())]) for name, p in CASES]
)


def evaluate(function, values):
    with jax.enable_x64(True):
        return np.asarray(function(jnp.asarray(values, jnp.float64)))


def residuals(divergence):
    """Residuals from where the ratio is all but zero to where it is 30, and off the kinks."""
    slopes = evaluate(divergence.slope, RATIOS)
    return np.unique(np.concatenate([slopes, (slopes[1:] + slopes[:-1]) / 2, slopes[:1] - 0.3]))


def test_the_generator_is_convex_and_zero_at_one(name, parameters):
    divergence = get_divergence(name, **parameters)
    assert evaluate(divergence.generator, 1.0) == pytest.approx(0, abs=1e-15)
    t, s = np.meshgrid(RATIOS, RATIOS)
    phi_t, phi_s = (evaluate(divergence.generator, value) for value in (t, s))
    tangent = phi_s + evaluate(divergence.slope, s) * (t - s)
    assert (phi_t - tangent >= -1e-9 * (1 + np.abs(phi_t))).all()
    assert (evaluate(divergence.generator, (t + s) / 2) <= (phi_t + phi_s) / 2 + 1e-12).all()


def test_the_slope_is_the_derivative_of_the_generator(name, parameters):
    divergence = get_divergence(name, **parameters)
    t = RATIOS[RATIOS != 1] if name == "tv" else RATIOS
    step = 1e-6 * t
    rise = evaluate(divergence.generator, t + step) - evaluate(divergence.generator, t - step)
    np.testing.assert_allclose(evaluate(divergence.slope, t), rise / (2 * step), rtol=1e-5, atol=1e-5)


def test_the_conjugate_is_the_supremum_that_brute_force_finds(name, parameters):
    divergence = get_divergence(name, **parameters)
    t = np.concatenate([[0.0, 1.0], np.logspace(-6, 3, 400_001)])  # 1 is where a kink may be
    phi = evaluate(divergence.generator, t)
    for u in residuals(divergence):
        found = (u * t - phi).max()
        conjugate = float(evaluate(divergence.conjugate, u))
        assert found == pytest.approx(conjugate, rel=1e-7, abs=1e-5 if u < -1 else 1e-7)
        assert found <= conjugate + 1e-9 * (1 + abs(found))


def test_outside_its_domain_the_conjugate_is_infinite_as_the_supremum_is(name, parameters):
    divergence = get_divergence(name, **parameters)
    slope_far_away = float(evaluate(divergence.slope, 1e12))
    if divergence.upper == np.inf:
        assert slope_far_away > 20
        assert np.isfinite(evaluate(divergence.conjugate, np.array([-50.0, 5.0, 20.0]))).all()
        return
    assert slope_far_away == pytest.approx(divergence.upper, abs=1e-5)
    assert slope_far_away <= divergence.upper
    far = np.array([1e6, 1e8, 1e10])
    for beyond in (1e-3, 0.1, 3.0):
        u = divergence.upper + beyond
        growth = u * far - evaluate(divergence.generator, far)
        assert (np.diff(growth) > 0.5 * beyond * np.diff(far)).all()  # straight to infinity
        assert evaluate(divergence.conjugate, u) == np.inf
        assert evaluate(divergence.ratio, u) == np.inf
    assert np.isfinite(evaluate(divergence.conjugate, divergence.upper - 1e-3))


def test_the_ratio_is_the_derivative_of_the_conjugate(name, parameters):
    divergence = get_divergence(name, **parameters)
    u = residuals(divergence)
    room = 1e-6 * np.minimum(1, divergence.upper - u) if divergence.upper < np.inf else 1e-6 + 0 * u
    if name == "tv":  # kinks at both ends of its domain
        u, room = np.array([-1.5, -0.5, 0.0, 0.7]), 1e-6
    rise = evaluate(divergence.conjugate, u + room) - evaluate(divergence.conjugate, u - room)
    np.testing.assert_allclose(evaluate(divergence.ratio, u), rise / (2 * room), rtol=1e-5, atol=1e-5)
    gradient = evaluate(jax.vmap(jax.grad(divergence.conjugate)), u)
    np.testing.assert_allclose(evaluate(divergence.ratio, u), gradient, rtol=1e-9, atol=1e-12)


def test_the_ratio_undoes_the_slope(name, parameters):
    divergence = get_divergence(name, **parameters)
    u = evaluate(divergence.slope, RATIOS)
    # t ∈ ∂φ*(φ'(t)), which also says what is meant where φ has a kink.
    below, above = (evaluate(divergence.ratio, u + side) for side in (-1e-7, 1e-7))
    assert (below <= RATIOS).all()
    assert (above >= RATIOS).all()
    strictly_convex = (np.diff(u) > 0).all()
    assert strictly_convex == (name != "tv")
    if strictly_convex:
        np.testing.assert_allclose(evaluate(divergence.ratio, u), RATIOS, rtol=1e-9)
        fenchel = evaluate(divergence.generator, RATIOS) + evaluate(divergence.conjugate, u)
        np.testing.assert_allclose(fenchel, RATIOS * u, rtol=1e-9, atol=1e-12)


def test_a_ratio_of_zero_has_the_limits_of_the_generator(name, parameters):
    divergence = get_divergence(name, **parameters)
    at_zero = float(evaluate(divergence.generator, 0.0))
    near_zero = float(evaluate(divergence.generator, 1e-12))
    assert not np.isnan(at_zero)
    assert near_zero == pytest.approx(at_zero, abs=1e-5) if np.isfinite(at_zero) else near_zero > 20
    lowest = evaluate(divergence.conjugate, -1e9)  # φ*(−∞) = −φ(0)
    assert lowest == pytest.approx(-at_zero, abs=1e-4) if np.isfinite(at_zero) else lowest < -20


def test_the_gap_is_the_least_over_all_shifts(name, parameters):
    divergence = get_divergence(name, **parameters)
    rng = np.random.default_rng(0)
    x, weight = rng.uniform(-0.9, 0.9, 40), rng.dirichlet(np.ones(40))
    shifted = x - np.linspace(-3, 3, 30_001)[:, None]
    with np.errstate(invalid="ignore"):
        least = ((evaluate(divergence.conjugate, shifted) - shifted) @ weight).min()
    with jax.enable_x64(True):
        best = float(gap(divergence, jnp.asarray(x), jnp.asarray(weight)))
    # A kink at the end of the domain is missed by up to one step of the grid.
    assert least - 2e-4 <= best <= least + 1e-9


def test_gradients_of_the_conjugate_are_never_nan(name, parameters):
    divergence = get_divergence(name, **parameters)
    u = np.linspace(-30, 30, 121)
    assert not np.isnan(evaluate(jax.vmap(jax.grad(divergence.conjugate)), u)).any()
    assert not np.isnan(evaluate(divergence.conjugate, u)).any()
