"""Where the printed mathematics of the paper fails, each with the correction that holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from tabular_problems import problems

from ppo_dice.tabular import TabularMDP, garnet, performance_bounds, random_policy


def fork_policies(new, old):
    return [[1 - new, new]], [[1 - old, old]]


ONE_STATE = TabularMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), [1.0], 0.9)


def test_the_printed_pinsker_mixes_two_conventions_and_is_false_in_l1():
    # The paper defines D_TV = ∫|d' − d| and bounds it by √(½ KL); in L1 Pinsker's inequality reads √(2 KL).
    new, old = fork_policies(0.6, 0.5)
    l1, kl = (ONE_STATE.divergence(new, old, name) for name in ("tv", "kl"))
    assert l1 == pytest.approx(0.2)
    assert l1 > np.sqrt(kl / 2)
    assert l1 <= np.sqrt(2 * kl)
    assert l1 / 2 <= np.sqrt(kl / 2)  # half-L1, for which it was meant
    # And the factor 2 cannot be improved: the bound is attained by small steps.
    new, old = fork_policies(0.501, 0.5)
    l1, kl = (ONE_STATE.divergence(new, old, name) for name in ("tv", "kl"))
    assert l1 == pytest.approx(np.sqrt(2 * kl), rel=1e-5)


@settings(max_examples=300)
@given(problems())
def test_the_printed_factor_of_actions_is_true_but_twice_too_large_in_l1(problem):
    # 2γ/(1−γ) E_d D_TV(π'‖π) fits ‖d'−d‖₁ on the left if D_TV is half-L1 on the right; with L1 on both sides
    # γ/(1−γ) is enough.
    bounds = performance_bounds(problem.mdp, problem.new, problem.old)
    gamma = problem.mdp.gamma
    printed = 2 * gamma / (1 - gamma) * bounds.action_l1
    assert bounds.state_l1 <= printed / 2 + 1e-9


def test_half_of_the_printed_factor_of_actions_is_attained():
    # π goes left for ever and π' right: ‖d'−d‖₁ = 2γ = γ/(1−γ) · (1−γ)·2.
    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[0, 1, 2] = P[1, :, 1] = P[2, :, 2] = 1
    mdp = TabularMDP(P, np.zeros((3, 2)), [1, 0, 0], 0.9)
    left, right = np.full((3, 2), 0.5), np.full((3, 2), 0.5)
    left[0], right[0] = [1, 0], [0, 1]
    bounds = performance_bounds(mdp, right, left)
    assert bounds.state_l1 == pytest.approx(2 * 0.9)
    assert bounds.state_l1 == pytest.approx(bounds.state_l1_by_actions)


def test_the_printed_conjugate_of_total_variation_is_not_that_of_its_generator():
    # Printed: φ = |t − 1| and φ*(u) = u for |u| ≤ ½, else ∞. By definition φ*(u) = max(u, −1) up to u = 1.
    t = np.linspace(0, 50, 500_001)
    supremum = lambda u: (u * t - np.abs(t - 1)).max()
    assert supremum(0.75) == pytest.approx(0.75)  # printed as ∞
    assert supremum(-0.75) == pytest.approx(-0.75)  # printed as ∞
    assert supremum(-3) == pytest.approx(-1)  # printed as ∞
    assert supremum(1.1) > 5  # grows with t: here it is ∞ indeed
    # With the printed domain |x| ≤ ½ no g gets beyond half of ‖μ' − μ‖₁, the half-L1 convention once more.
    mdp = garnet(6, 3, 3, 0.9, seed=0)
    new, old = random_policy(mdp, 1), random_policy(mdp, 2)
    objective = mdp.objective(new, old, "tv")
    half = objective.optimum() / 2
    assert np.abs(objective.residual(half)).max() <= 0.5 + 1e-9
    printed = objective.initial_term(half) - objective.mean_residual(half)
    assert printed == pytest.approx(objective.exact / 2, abs=1e-9)


def test_the_printed_constraint_of_total_variation_lacks_gamma():
    # ‖g − P^π g‖ ≤ ½ says nothing of constants, whose residual is (1−γ)c: they break the constraint meant.
    mdp = garnet(6, 3, 3, 0.9, seed=0)
    objective = mdp.objective(random_policy(mdp, 1), random_policy(mdp, 2), "tv")
    constant = np.full((6, 3), 100.0)
    next_value = mdp.P @ (objective.pi_new * constant).sum(1)
    assert np.abs(constant - next_value).max() <= 0.5
    assert objective.residual(constant) == pytest.approx(10)
    assert objective.paper(constant) == -np.inf


def test_the_printed_definition_of_phi_divergences_is_the_reverse_of_its_variational_form():
    # Printed: D_φ(μ'‖μ) = E_μ'[φ(μ/μ')], which for φ = t log t is KL(μ‖μ'). The supremum over g is KL(μ'‖μ).
    mdp = garnet(6, 3, 3, 0.9, seed=0)
    new, old = random_policy(mdp, 1), random_policy(mdp, 2)
    mu_new, mu_old = mdp.visitation(new).mu, mdp.visitation(old).mu
    t = mu_old / mu_new
    printed = (mu_new * t * np.log(t)).sum()
    objective = mdp.objective(new, old, "kl_paper")
    assert printed == pytest.approx(mdp.divergence(new, old, "reverse_kl"), abs=1e-12)
    assert objective.paper(objective.optimum()) == pytest.approx(mdp.divergence(new, old, "kl"), abs=1e-9)
    assert abs(printed - objective.exact) > 0.05


def clipped_surrogate(mdp, new, old, clip=0.2):
    """E_μ[min(κA, clip(κ, 1−ε, 1+ε)A)], as the paper defines L^clip: without J(π)."""
    advantage, ratio = mdp.values(old).A, mdp.policy(new) / mdp.policy(old)
    worst = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    return float((mdp.visitation(old).mu * worst).sum())


def test_the_printed_clipped_bound_omits_the_performance_of_the_data_policy():
    # J(π') ≥ L^clip − ε‖d'−d‖₁ is false at π' = π as soon as J(π) < 0: the right-hand side is zero.
    mdp = garnet(6, 3, 3, 0.9, seed=0)
    costly = TabularMDP(mdp.P, mdp.r - 10, mdp.rho, mdp.gamma)
    pi = random_policy(mdp, 1)
    bounds = performance_bounds(costly, pi, pi)
    printed = clipped_surrogate(costly, pi, pi) - bounds.epsilon * bounds.state_l1
    assert printed == pytest.approx(0, abs=1e-9)
    assert bounds.J_new < -5


@settings(max_examples=200)
@given(problems())
def test_with_that_performance_the_clipped_bound_holds(problem):
    mdp, new, old = problem.mdp, problem.new, problem.old
    bounds = performance_bounds(mdp, new, old)
    corrected = bounds.J_old + clipped_surrogate(mdp, new, old)
    assert corrected <= bounds.surrogate + 1e-9
    assert corrected - bounds.epsilon * bounds.state_l1 <= bounds.J_new + 1e-9


def test_masking_the_end_with_uniform_weights_lets_g_win_at_equal_policies():
    # x = g − γ(1 − done)V'_g and ρ = all visited states: with g = c → −∞ the value nears −log(1 − p_done).
    mdp = garnet(6, 3, 3, 0.9, seed=0, n_terminal=1)
    pi = random_policy(mdp, 1)
    mu = mdp.stationary(pi)[:, None] * mdp.policy(pi)
    done = mdp.P[..., mdp.is_terminal].sum(-1)
    constant = -200.0

    def masked_value(c):
        # log E_μ E_{s'}[eˣ], whose residual is c where the episode ends and (1−γ)c where it goes on
        ends, goes_on = np.exp(c - (1 - mdp.gamma) * c), 1.0
        return -np.log((mu * (done * ends + (1 - done) * goes_on)).sum())

    p_done = (mu * done).sum()
    assert masked_value(constant) == pytest.approx(-np.log(1 - p_done), abs=1e-9)
    assert masked_value(constant) > 0.05
    consistent = mdp.objective(pi, pi, "kl", chain="restart", initial=mdp.stationary(pi))
    assert consistent.donsker_varadhan(np.full((6, 3), constant)) == pytest.approx(0, abs=1e-9)
