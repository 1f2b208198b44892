"""Every variational form attains D at g*, and no g exceeds it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from tabular_problems import DIVERGENCE_CASES, Problem, problems

from ppo_dice.errors import UserError
from ppo_dice.tabular import TabularMDP, garnet, random_policy
from ppo_dice.tabular.objectives import in_float64

divergences = pytest.mark.parametrize(
    ("name", "parameters"),
    DIVERGENCE_CASES,
    ids=["-".join([n, *map(str, p.values())]) for n, p in DIVERGENCE_CASES],
)


def close(value, expected):
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


@divergences
@settings(max_examples=25)
@given(problem=problems())
def test_every_form_attains_the_divergence_at_the_optimal_g(name, parameters, problem):
    objective = problem.objective(name, **parameters)
    g, exact = objective.optimum(), objective.exact
    scale = 1 + np.abs(g).max()  # g* adds up 1/(1−γ) slopes, and the forms subtract such numbers again
    assert exact >= -1e-12
    for value in (
        objective.paper(g),
        objective.paper(g, shift=True),
        objective.difference(g),
        objective.difference(g, shift=True),
    ):
        assert value == pytest.approx(exact, abs=1e-10 * scale)
    if parameters == {} and name in ("kl", "kl_paper"):
        close(objective.donsker_varadhan(g), exact)
        close(objective.donsker_varadhan(g + 3.7), exact)


@divergences
@settings(max_examples=25)
@given(problem=problems())
def test_no_g_exceeds_the_divergence_and_the_best_shift_only_helps(name, parameters, problem):
    objective = problem.objective(name, **parameters)
    best = objective.optimum()
    for g in (problem.random_g(), problem.random_g(3.0), best + problem.random_g(0.01)):
        rounding = 1e-10 * (1 + np.abs(g).max() + abs(objective.paper(g)))
        plain, shifted = objective.paper(g), objective.paper(g, shift=True)
        assert plain <= shifted + rounding
        assert shifted <= objective.exact + rounding
        # Both forms are the same number, and a constant added to g is a shift of x by (1−γ) times it.
        assert objective.difference(g, shift=True) == pytest.approx(shifted, abs=rounding)
        assert objective.paper(g + 2.5, shift=True) == pytest.approx(shifted, abs=rounding)
        assert objective.difference(g) == pytest.approx(plain, abs=rounding)


@divergences
@settings(max_examples=8)
@given(problem=problems())
def test_the_best_shift_is_the_minimum_that_a_general_search_finds(name, parameters, problem):
    objective = problem.objective(name, **parameters)
    g = problem.random_g(0.3)
    mu, x = objective.old.mu, objective.residual(g)
    visited = mu > 0

    def shifted_mean(c):
        return float((mu[visited] * in_float64(objective.divergence.conjugate, x - c)[visited]).sum() + c)

    lowest = max(x[visited].max() - objective.divergence.upper, x[visited].min() - 5)
    found = minimize_scalar(shifted_mean, bounds=(lowest, x[visited].max() + 1), method="bounded").fun
    value = objective.conjugate_mean(g, shift=True)
    assert value <= found + 1e-10
    assert value == pytest.approx(found, abs=1e-4)


@settings(max_examples=50)
@given(problems())
def test_the_optimal_g_of_the_papers_kl_is_shifted_by_the_horizon(problem):
    shift = problem.objective("kl_paper").optimum() - problem.objective("kl").optimum()
    np.testing.assert_allclose(shift, 1 / (1 - problem.mdp.gamma), rtol=1e-9)


@settings(max_examples=300)
@given(problems())
def test_the_difference_identity_holds_for_every_g_start_and_pair_of_policies(problem):
    objective = problem.objective("kl")
    g = problem.random_g(5.0)
    close(objective.initial_term(g), objective.mean_residual(g) + objective.mean_change(g))
    elsewhere = problem.mdp.objective(
        problem.new, problem.old, "kl", initial=np.eye(problem.mdp.n_states)[0], chain=problem.chain["chain"]
    )
    close(elsewhere.initial_term(g), elsewhere.mean_residual(g) + elsewhere.mean_change(g))
    assert abs(objective.mean_change(g) - objective.mean_residual(g)) > 0  # neither side is trivially zero


@settings(max_examples=100)
@given(problems())
def test_the_best_shift_has_the_closed_forms_of_kl_and_chi2(problem):
    g = problem.random_g(0.5)
    kl, chi2 = problem.objective("kl"), problem.objective("chi2")
    x, mu = kl.residual(g), kl.old.mu
    mean = (mu * x).sum()
    close(kl.gap(g, shift=True), logsumexp(x, b=mu) - mean)
    close(kl.paper(g, shift=True), kl.donsker_varadhan(g))
    variance = (mu * (x - mean) ** 2).sum()
    if (x - mean)[mu > 0].min() >= -2:  # all ratios 1 + (x − mean)/2 are those of a density
        close(chi2.gap(g, shift=True), variance / 4)
    else:
        assert chi2.gap(g, shift=True) < variance / 4


@settings(max_examples=100)
@given(problems())
def test_donsker_and_varadhan_is_above_the_conjugate_form_for_every_g(problem):
    objective = problem.objective("kl")
    g = problem.random_g()
    assert objective.paper(g) <= objective.donsker_varadhan(g) + 1e-12 <= objective.exact + 1e-9


@divergences
@settings(max_examples=15)
@given(problem=problems())
def test_no_g_finds_a_difference_between_a_policy_and_itself(name, parameters, problem):
    objective = replace(problem, step=0.0).objective(name, **parameters)
    assert objective.exact == pytest.approx(0, abs=1e-15)
    assert objective.paper(np.full_like(problem.old, 2.5), shift=True) == pytest.approx(0, abs=1e-12)
    assert objective.difference(problem.random_g(), shift=True) <= 1e-12
    assert objective.paper(problem.random_g(), shift=True) < 1e-12


def test_the_divergence_is_quadratic_in_the_step_and_total_variation_linear():
    mdp = garnet(6, 3, 3, 0.9, seed=5, n_terminal=1)
    old, other = 0.5 / 3 + 0.5 * random_policy(mdp, 1), random_policy(mdp, 2)
    for chain in ({}, {"chain": "restart", "initial": mdp.stationary(old)}):
        for name, parameters in DIVERGENCE_CASES:
            whole, half = (
                mdp.divergence((1 - step) * old + step * other, old, name, **chain, **parameters)
                for step in (2e-3, 1e-3)
            )
            assert whole / half == pytest.approx(2 if name == "tv" else 4, rel=0.02)


def one_state(gamma=0.5):
    return TabularMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), [1.0], gamma)


def test_missing_support_is_infinite_or_the_finite_limit_and_never_nan():
    mdp = one_state()
    wide, narrow = [[0.5, 0.5]], [[1.0, 0.0]]
    infinite = np.inf
    expected = {  # D(wide‖narrow): μ'/μ is ½ and ∞; D(narrow‖wide): 2 and 0
        "kl": (infinite, np.log(2)),
        "kl_paper": (infinite, np.log(2)),
        "reverse_kl": (np.log(2), infinite),
        "chi2": (infinite, 1),
        "tv": (1, 1),
        # ½KL(wide‖mean) + ½KL(narrow‖mean), with mean = (¾, ¼).
        "js": 2 * (np.log(2 / 3) / 4 + np.log(2) / 4 + np.log(4 / 3) / 2,),
        "hellinger": (2 - np.sqrt(2), 2 - np.sqrt(2)),
        "soft_chi2": (infinite, 0.5 / 2 + 0.5),
    }
    for name, (outside, inside) in expected.items():
        assert mdp.divergence(wide, narrow, name) == pytest.approx(outside)
        assert mdp.divergence(narrow, wide, name) == pytest.approx(inside)


@divergences
def test_missing_support_is_the_limit_of_little_support(name, parameters):
    mdp = one_state()
    cases = ([0.5, 0.5], [1.0, 0.0]), ([1.0, 0.0], [0.5, 0.5]), ([1.0, 0.0], [0.0, 1.0])
    for new, old in (np.array(case)[:, None] for case in cases):
        found = mdp.divergence(new, old, name, **parameters)
        near = [
            mdp.divergence(
                (1 - little) * new + little / 2, (1 - little) * old + little / 2, name, **parameters
            )
            for little in (1e-6, 1e-12, 1e-300)
        ]
        if np.isfinite(found):
            assert near[1] == pytest.approx(found, rel=1e-3)
            assert near[2] == pytest.approx(found, rel=1e-9)
        else:
            assert near[2] > near[1] > near[0]
            assert near[2] > 300  # 1e-300 is far away even for a logarithm


def test_no_ratio_is_too_large_for_a_number():
    for name, parameters in DIVERGENCE_CASES:
        for least in (1e-306, 1e-308, 5e-324):
            for pair in (([[0.5, 0.5]], [[1, least]]), ([[1, least]], [[0.5, 0.5]])):
                assert not np.isnan(one_state().divergence(*pair, name, **parameters)), (name, least)


def test_disjoint_policies_are_as_far_apart_as_can_be():
    mdp = one_state()
    left, right = [[1.0, 0.0]], [[0.0, 1.0]]
    assert mdp.divergence(left, right, "tv") == 2
    assert mdp.divergence(left, right, "hellinger") == 2
    assert mdp.divergence(left, right, "js") == pytest.approx(np.log(2))
    assert mdp.divergence(left, right, "kl") == np.inf
    assert mdp.divergence(left, right, "reverse_kl") == np.inf
    assert mdp.divergence(left, right, "alpha", order=0.5) == 4
    assert mdp.divergence(left, right, "alpha", order=1.5) == np.inf
    assert mdp.divergence(left, right, "alpha", order=-0.5) == np.inf


@divergences
def test_an_optimal_g_of_minus_infinity_still_gives_the_divergence(name, parameters):
    mdp = garnet(5, 2, 2, 0.8, seed=1)
    old = 0.2 + 0.6 * random_policy(mdp, 1)
    new = old.copy()
    new[0] = [1.0, 0.0]  # π' leaves out one action, so μ'/μ = 0 there
    objective = mdp.objective(new, old, name, **parameters)
    if not np.isfinite(objective.exact):
        with pytest.raises(UserError, match="No g is optimal where"):
            objective.optimum()
        return
    g = objective.optimum()
    assert not np.isnan(g).any()
    assert objective.paper(g) == pytest.approx(objective.exact, abs=1e-9)
    assert objective.paper(g, shift=True) == pytest.approx(objective.exact, abs=1e-9)
    assert (g[0, 1] == -np.inf) == (in_float64(objective.divergence.slope, 0.0) == -np.inf)
    if g[0, 1] == -np.inf:
        with pytest.raises(UserError, match="needs a finite g"):
            objective.difference(g)


@divergences
def test_an_action_that_only_the_new_policy_takes_has_a_finite_g_where_the_divergence_is_finite(
    name, parameters
):
    mdp = garnet(5, 2, 2, 0.8, seed=1)
    new = 0.2 + 0.6 * random_policy(mdp, 1)
    old = new.copy()
    old[0] = [1.0, 0.0]
    objective = mdp.objective(new, old, name, **parameters)
    assert np.isfinite(objective.exact) == np.isfinite(objective.divergence.upper)
    if np.isfinite(objective.exact):
        g = objective.optimum()
        assert np.isfinite(g).all()
        close(objective.paper(g), objective.exact)


def test_the_exact_side_is_float64_though_jax_is_not():
    problem = Problem(7, (6, 3), 0.9, 0, 0.05, False)
    new, old = (problem.mdp.visitation(pi).mu for pi in (problem.new, problem.old))
    expected = (new * np.log(new / old)).sum()
    assert problem.mdp.divergence(problem.new, problem.old, "kl") == pytest.approx(expected, rel=1e-11)
    assert problem.mdp.optimal_discriminator(problem.new, problem.old, "kl").dtype == np.float64
    assert in_float64(lambda u: u, 0.0).dtype == np.float64
