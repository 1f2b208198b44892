"""The bound chain from total variation to KL, the sandwich and the chain rule, on hundreds of processes."""

import numpy as np
import pytest
from hypothesis import given, settings
from tabular_problems import problems

from ppo_dice.tabular import (
    TabularMDP,
    garnet,
    kl_divergence,
    performance_bounds,
    random_policy,
    sandwich,
)

ROUNDING = 1e-9


@settings(max_examples=300)
@given(problems())
def test_every_link_of_the_bound_chain_holds(problem):
    bounds = performance_bounds(problem.mdp, problem.new, problem.old)
    from_tight_to_loose = [
        bounds.J_new,
        bounds.by_span,
        bounds.by_states,
        bounds.by_state_actions,
        bounds.by_kl,
    ]
    assert (np.diff(from_tight_to_loose) <= ROUNDING).all()
    assert bounds.state_l1 <= bounds.state_action_l1 + ROUNDING
    assert bounds.state_action_l1 <= np.sqrt(2 * max(bounds.kl, 0)) + ROUNDING
    assert bounds.state_l1 <= bounds.state_l1_by_actions + ROUNDING
    assert bounds.by_actions <= bounds.by_states + ROUNDING
    assert bounds.span <= 2 * bounds.epsilon + ROUNDING


@settings(max_examples=50)
@given(problems())
def test_the_distances_of_the_bounds_are_divergences_of_the_registry(problem):
    mdp, new, old = problem.mdp, problem.new, problem.old
    bounds = performance_bounds(mdp, new, old)
    assert bounds.kl == pytest.approx(mdp.divergence(new, old, "kl"), abs=1e-12)
    assert bounds.state_action_l1 == pytest.approx(mdp.divergence(new, old, "tv"), abs=1e-12)
    assert bounds.J_old == pytest.approx(mdp.values(old).J, abs=1e-12)
    gain = mdp.visitation(old).d @ (mdp.policy(new) * mdp.values(old).A).sum(1)
    assert bounds.surrogate == pytest.approx(bounds.J_old + gain, abs=1e-12)


def test_the_bounds_are_equalities_where_nothing_changes():
    mdp = garnet(6, 3, 3, 0.9, seed=0, n_terminal=1)
    pi = random_policy(mdp, 1)
    bounds = performance_bounds(mdp, pi, pi)
    for bound in (bounds.by_span, bounds.by_states, bounds.by_state_actions, bounds.by_actions):
        assert bound == pytest.approx(bounds.J_old, abs=1e-12)
    assert bounds.by_kl == pytest.approx(bounds.J_old, abs=1e-6)  # the root of a rounding error


@settings(max_examples=300)
@given(problems())
def test_the_sandwich_and_the_chain_rule_hold_on_every_chain(problem):
    ends = sandwich(problem.mdp, problem.new, problem.old, **problem.chain)
    assert ends.kl == pytest.approx(ends.state_kl + ends.action_kl, abs=ROUNDING)
    assert ends.lower <= ends.kl + ROUNDING
    assert ends.kl <= ends.upper + ROUNDING
    assert ends.upper <= ends.safe_upper + ROUNDING
    assert min(ends.state_kl, ends.action_kl) >= -1e-12


def test_both_ends_of_the_sandwich_are_attained():
    # One state: the state part is nothing and KL(μ'‖μ) is the lower end.
    alone = TabularMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), [1.0], 0.9)
    ends = sandwich(alone, [[0.8, 0.2]], [[0.5, 0.5]])
    assert ends.kl == pytest.approx(ends.lower, abs=1e-15)
    # The first action decides for ever and is seen in every later state: KL(μ'‖μ) is the upper end.
    mdp, new, old = fork(0.99, first=(0.8, 0.5))
    ends = sandwich(mdp, new, old)
    assert ends.kl == pytest.approx(ends.upper, abs=1e-12)
    assert ends.upper == pytest.approx(100 * ends.lower)


def fork(gamma, first, left=(0.5, 0.5)):
    """From 0 one action leads to 1 and the other to 2, for ever; probabilities of action 1 of (π', π)."""
    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[0, 1, 2] = 1
    P[1, :, 1] = P[2, :, 2] = 1
    new, old = (
        np.array([[1 - go, go], [0.5, 0.5], [1 - stay, stay]]) for go, stay in zip(first, left, strict=True)
    )
    return TabularMDP(P, np.zeros((3, 2)), [1, 0, 0], gamma), new, old


def test_means_over_the_data_fail_the_lower_end_in_about_a_quarter_of_random_cases():
    failures, cases = 0, 400
    for seed in range(cases):
        mdp = garnet(6, 3, 3, 0.9, seed)
        ends = sandwich(mdp, random_policy(mdp, 2 * seed + 1), random_policy(mdp, 2 * seed + 2))
        failures += ends.plain_lower > ends.kl
    assert 0.15 < failures / cases < 0.35


def test_means_over_the_data_can_fail_the_upper_end_too():
    # π seldom goes to state 2, where π' differs most, so its data hardly know of the difference.
    mdp, new, old = fork(0.9, first=(0.5, 0.001), left=(0.999, 0.001))
    ends = sandwich(mdp, new, old)
    assert ends.plain_upper < 0.6 * ends.kl
    assert ends.kl < ends.upper < ends.safe_upper


def test_a_policy_without_support_has_infinite_ends_and_finite_other_bounds():
    mdp = garnet(4, 2, 2, 0.9, seed=0)
    new = np.full((4, 2), 0.5)
    old = new.copy()
    old[0] = [1, 0]
    ends, bounds = sandwich(mdp, new, old), performance_bounds(mdp, new, old)
    assert ends.kl == ends.lower == ends.upper == ends.safe_upper == np.inf
    assert bounds.by_kl == -np.inf
    assert np.isfinite(bounds.by_state_actions)
    # The other way round support is there, and a probability of zero counts for nothing.
    assert np.isfinite(sandwich(mdp, old, new)).all()


def test_kl_of_known_distributions():
    assert kl_divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == pytest.approx(np.log(2))
    assert kl_divergence(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == np.inf
    assert kl_divergence(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0
