"""Both sides of every inequality on which the regulariser rests.

The L1 convention throughout: ‖p − q‖₁ = Σ|p − q|, which is D_φ for φ = |t − 1|, and twice the
total variation of the half-L1 convention. With h(s) = E_{a~π'}[A^π(s,a)], ε = max|h| and L = J(π) + E_d[h]:

    J(π') ≥ L − ½ span(h) ‖d'−d‖₁ ≥ L − ε‖d'−d‖₁ ≥ L − ε‖μ'−μ‖₁ ≥ L − ε√(2 KL(μ'‖μ))
    ‖d'−d‖₁ ≤ γ/(1−γ) E_d‖π'−π‖₁
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ppo_dice.tabular.chains import expectation
from ppo_dice.tabular.mdp import TabularMDP


class PerformanceBounds(NamedTuple):
    """J(π'), the distances between two policies, and lower bounds of J(π') from the best to the loosest."""

    J_new: float
    """J(π')."""
    J_old: float
    """J(π)."""
    surrogate: float
    """L = J(π) + E_d[h]."""
    epsilon: float
    """ε = max_s |h(s)|."""
    span: float
    """max_s h(s) − min_s h(s)."""
    state_l1: float
    """‖d' − d‖₁."""
    state_action_l1: float
    """‖μ' − μ‖₁."""
    kl: float
    """KL(μ'‖μ)."""
    action_l1: float
    """E_d‖π' − π‖₁."""
    state_l1_by_actions: float
    """γ/(1−γ) E_d‖π' − π‖₁, an upper bound of `state_l1`."""
    by_span: float
    """L − ½ span(h) ‖d'−d‖₁."""
    by_states: float
    """L − ε‖d'−d‖₁."""
    by_state_actions: float
    """L − ε‖μ'−μ‖₁."""
    by_kl: float
    """L − ε√(2 KL(μ'‖μ))."""
    by_actions: float
    """L − ε γ/(1−γ) E_d‖π'−π‖₁: below `by_states`, but in no order with those between."""


class Sandwich(NamedTuple):
    """KL(μ'‖μ) between closed forms in the policies, and the ends that a plain mean over a rollout gives.

    `lower` ≤ `kl` ≤ `upper` ≤ `safe_upper`, and `kl` = `state_kl` + `action_kl`, which is also `lower`.
    The plain ends are means over d, which is what was sampled, instead of d'; neither is a bound.
    """

    kl: float
    """KL(μ'‖μ)."""
    state_kl: float
    """KL(d'‖d)."""
    action_kl: float
    """E_{d'}KL(π'‖π)."""
    lower: float
    """E_{d'}KL(π'‖π)."""
    upper: float
    """E_{d'}KL(π'‖π)/(1−γ)."""
    plain_lower: float
    """E_d KL(π'‖π)."""
    plain_upper: float
    """E_d KL(π'‖π)/(1−γ)."""
    safe_upper: float
    """max_s KL(π'‖π)/(1−γ) over the states that π' visits."""


def performance_bounds(mdp: TabularMDP, pi_new: ArrayLike, pi_old: ArrayLike) -> PerformanceBounds:
    """Every quantity of the bound chain."""
    new, old = mdp.policy(pi_new), mdp.policy(pi_old)
    d_new, mu_new = mdp.visitation(new)
    d_old, mu_old = mdp.visitation(old)
    values = mdp.values(old)
    h = expectation(new, values.A)
    surrogate = values.J + float(d_old @ h)
    epsilon, span = float(np.abs(h).max()), float(np.ptp(h))
    state_l1, state_action_l1 = float(np.abs(d_new - d_old).sum()), float(np.abs(mu_new - mu_old).sum())
    kl = float(kl_divergence(mu_new.ravel(), mu_old.ravel()))
    action_l1 = float(d_old @ np.abs(new - old).sum(-1))
    by_actions = mdp.gamma / (1 - mdp.gamma) * action_l1
    return PerformanceBounds(
        J_new=mdp.values(new).J,
        J_old=values.J,
        surrogate=surrogate,
        epsilon=epsilon,
        span=span,
        state_l1=state_l1,
        state_action_l1=state_action_l1,
        kl=kl,
        action_l1=action_l1,
        state_l1_by_actions=by_actions,
        by_span=surrogate - span / 2 * state_l1,
        by_states=surrogate - epsilon * state_l1,
        by_state_actions=surrogate - epsilon * state_action_l1,
        by_kl=surrogate - (epsilon * float(np.sqrt(2 * max(kl, 0.0))) if epsilon > 0 else 0.0),
        by_actions=surrogate - epsilon * by_actions,
    )


def sandwich(mdp: TabularMDP, pi_new: ArrayLike, pi_old: ArrayLike, **chain: Any) -> Sandwich:
    """KL(μ'‖μ), its two parts and its bounds; `chain` and `initial` are those of `TabularMDP.visitation`."""
    new, old = mdp.policy(pi_new), mdp.policy(pi_old)
    d_new, mu_new = mdp.visitation(new, **chain)
    d_old, mu_old = mdp.visitation(old, **chain)
    policy_kl = kl_divergence(new, old)
    under_new, under_old = float(expectation(d_new, policy_kl)), float(expectation(d_old, policy_kl))
    horizon = 1 / (1 - mdp.gamma)
    return Sandwich(
        kl=float(kl_divergence(mu_new.ravel(), mu_old.ravel())),
        state_kl=float(kl_divergence(d_new, d_old)),
        action_kl=under_new,
        lower=under_new,
        upper=horizon * under_new,
        plain_lower=under_old,
        plain_upper=horizon * under_old,
        safe_upper=float(horizon * policy_kl[d_new > 0].max()),
    )


def kl_divergence(p: Float[np.ndarray, "... n"], q: Float[np.ndarray, "... n"]) -> Any:
    """KL(p‖q) = Σ p log(p/q) over the last axis, infinite where p has mass and q has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return expectation(p, np.log(p) - np.log(q))
