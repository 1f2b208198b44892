"""The library's own estimators find the exact divergence, on sampled rollouts of systems that are known."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice.chains import CHAINS, Rows
from ppo_dice.divergence import DIVERGENCES, extended, get_divergence
from ppo_dice.linear_discriminator import fit_linear
from ppo_dice.tabular import LinearGaussian, TabularMDP, garnet, random_policy
from ppo_dice.tabular.estimation import (
    each_environment,
    feature_rows,
    gaussian_policy,
    one_hot_features,
    polynomial_features,
    tabular_policy,
)

N_ROLLOUTS = 50
SYSTEM, OLD = LinearGaussian(a=0.9, b=0.5, noise=0.3, gamma=0.9), (-0.3, 0.0, 0.5)


@partial(jax.jit, static_argnames=("name", "order", "features", "form", "options"))
def estimates(
    rollouts,
    new,
    old,
    gamma,
    key,
    *,
    name="kl",
    order=None,
    features,
    form="difference",
    ridge=1e-3,
    options=(),
):
    divergence = get_divergence(name, **({} if order is None else {"order": order}))
    divergence = extended(divergence) if name == "tv" else divergence

    def one(rollout, key):
        rows = feature_rows(features, rollout, new, old, key, gamma, **dict(options))
        return fit_linear(divergence, rows, ridge, form=form).value

    n_rollouts = rollouts.reward.shape[0]
    return jax.lax.map(lambda args: one(*args), (rollouts, jax.random.split(key, n_rollouts)))


ONE_HOT, POLYNOMIALS = one_hot_features(3), polynomial_features(2)


def problem(seed, true_kl, deterministic, n_terminal=0):
    """A Garnet process and two policies, so far apart that the chain's divergence is `true_kl`."""
    mdp = garnet(10, 3, 3, 0.95, seed, deterministic, n_terminal)
    old, other = (0.1 / 3 + 0.9 * random_policy(mdp, place) for place in (seed, seed + 100))
    near, far = 0.0, 1.0
    for _ in range(40):
        step = (near + far) / 2
        new = (1 - step) * old + step * other
        small = exact(mdp, new, old) < true_kl
        near, far = (step, far) if small else (near, step)
    return mdp, new, old


def exact(mdp, new, old, name="kl", **parameters):
    return mdp.divergence(new, old, name, chain="restart", initial=mdp.stationary(old), **parameters)


def tabular_estimates(mdp, new, old, n_steps, *, limit=None, n_rollouts=N_ROLLOUTS, **how):
    rollouts = each_environment(mdp.sample(old, n_steps, jax.random.key(1), n_rollouts, limit))
    policies = tabular_policy(new), tabular_policy(old)
    return np.asarray(
        estimates(rollouts, *policies, mdp.gamma, jax.random.key(2), features=ONE_HOT, **how), np.float64
    )


def gaussian_estimates(new, n_steps, *, limit=None, **how):
    rollouts = each_environment(SYSTEM.sample(OLD, n_steps, jax.random.key(1), N_ROLLOUTS, limit))
    policies = gaussian_policy(new), gaussian_policy(OLD)
    return np.asarray(
        estimates(rollouts, *policies, SYSTEM.gamma, jax.random.key(2), features=POLYNOMIALS, **how),
        np.float64,
    )


def median_error(found, true):
    return np.median(np.abs(found / true - 1))


@pytest.mark.parametrize("true_kl", [0.005, 0.1])
@pytest.mark.parametrize("seed", [0, 1])
def test_deterministic_dynamics_are_estimated_within_15_percent_by_2048_steps(seed, true_kl):
    mdp, new, old = problem(seed, true_kl, deterministic=True)
    assert median_error(tabular_estimates(mdp, new, old, 2048), true_kl) <= 0.15


def test_more_steps_make_the_error_smaller():
    mdp, new, old = problem(3, 0.03, deterministic=True)
    errors = [median_error(tabular_estimates(mdp, new, old, n), 0.03) for n in (512, 2048, 8192)]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize(
    ("name", "order"),
    [(name, None) for name in DIVERGENCES if name not in ("kl", "alpha")]
    + [("alpha", order) for order in (-0.5, 0.5, 1.5, 2.0)],
)
def test_every_divergence_is_estimated_within_15_percent(name, order):
    mdp, new, old = problem(4, 0.03, deterministic=True)
    true = exact(mdp, new, old, name, **({} if order is None else {"order": order}))
    found = tabular_estimates(mdp, new, old, 2048, name=name, order=order, n_rollouts=10)
    assert median_error(found, true) <= 0.15


def test_a_termination_is_a_restart_in_the_restart_chain():
    mdp, new, old = problem(5, 0.03, deterministic=True, n_terminal=2)
    assert median_error(tabular_estimates(mdp, new, old, 2048), 0.03) <= 0.15


def test_a_time_limit_is_a_restart_in_the_restart_chain():
    mdp, new, old = problem(5, 0.03, deterministic=True)
    true = exact(with_random_restarts(mdp, old, limit=20), new, old)
    assert abs(true / 0.03 - 1) > 0.05  # the restarts matter
    found = tabular_estimates(mdp, new, old, 2048, limit=20, options=(("average_next", True),))
    assert median_error(found, true) <= 0.15


@pytest.mark.parametrize(("n_terminal", "limit"), [(1, None), (0, 100), (1, 100)])
@pytest.mark.parametrize("chain", ["absorbing", "absorbing-all"])
@pytest.mark.parametrize(("n_steps", "ridge"), [(2048, 1e-3), (8192, 1e-5)])
def test_the_absorbing_chains_find_what_the_process_is_without_restarts(
    n_steps, ridge, chain, n_terminal, limit
):
    mdp, new, old = problem(6, 0.03, deterministic=True, n_terminal=n_terminal)
    if chain == "absorbing":
        true = mdp.divergence(new, old, "kl")
    else:  # begun in the states that are visited from ρ, each counted the same
        visited = visits_per_episode(mdp, old, limit)
        true = mdp.divergence(new, old, "kl", initial=visited / visited.sum())
    # Most of the weight may be that of the absorbing state, where a ridge shrinks much: less is better, if
    # there are the steps for it.
    found = tabular_estimates(mdp, new, old, n_steps, limit=limit, ridge=ridge, options=(("chain", chain),))
    assert median_error(found, true) <= 0.15


@pytest.mark.parametrize("chain", ["absorbing", "absorbing-all"])
def test_time_limits_do_not_matter_to_the_absorbing_chains_of_a_gaussian_policy(chain):
    new = (-0.4, 0.15, 0.45)
    found = gaussian_estimates(new, 2048, limit=20, options=(("average_next", True), ("chain", chain)))
    assert median_error(found, SYSTEM.divergence(new, OLD).total) <= 0.15


@pytest.mark.parametrize("new", [(-0.33, 0.03, 0.49), (-0.4, 0.15, 0.45)])
def test_regressing_the_successor_closes_the_gap_of_stochastic_dynamics(new):
    true = SYSTEM.divergence(new, OLD).total
    sampled_truth = supremum_of_the_sampled_objective(new)
    assert 0.5 < sampled_truth / true < 0.8  # one sampled s' loses a quarter to a third, however many steps
    assert median_error(gaussian_estimates(new, 2048), sampled_truth) <= 0.15
    assert median_error(gaussian_estimates(new, 2048, options=(("average_next", True),)), true) <= 0.15


@pytest.mark.parametrize("true_kl", [0.005, 0.1])
def test_stochastic_processes_are_estimated_within_15_percent(true_kl):
    mdp, new, old = problem(7, true_kl, deterministic=False)
    sampled_truth = tabular_supremum_of_the_sampled_objective(mdp, new, old)
    assert 0.5 * true_kl < sampled_truth < true_kl
    assert median_error(tabular_estimates(mdp, new, old, 2048), sampled_truth) <= 0.15
    regressed = tabular_estimates(mdp, new, old, 2048, options=(("average_next", True),))
    assert median_error(regressed, true_kl) <= 0.15


def test_the_paper_form_with_sampled_actions_is_far_off_where_ours_is_near():
    mdp, new, old = problem(0, 0.03, deterministic=True)
    as_printed = {"form": "paper", "options": (("sampled", True), ("n_noises", 1))}
    assert median_error(tabular_estimates(mdp, new, old, 2048, **as_printed), 0.03) > 0.3
    assert median_error(tabular_estimates(mdp, new, old, 2048), 0.03) < 0.1


@pytest.mark.parametrize("chain", CHAINS)
def test_equal_policies_have_no_divergence_on_any_chain(chain):
    mdp, _, old = problem(8, 0.03, deterministic=False, n_terminal=1)
    found = tabular_estimates(mdp, old, old, 512, limit=30, options=(("chain", chain),), n_rollouts=10)
    assert np.abs(found).max() < 1e-6
    assert np.abs(gaussian_estimates(OLD, 512)).max() < 1e-6


def test_the_paper_form_sees_a_divergence_where_there_is_none():
    mdp, _, old = problem(8, 0.03, deterministic=False)
    as_printed = {"form": "paper", "options": (("sampled", True), ("n_noises", 1))}
    found = tabular_estimates(mdp, old, old, 512, n_rollouts=10, **as_printed)
    assert found.min() > 1e-3


def with_random_restarts(mdp, old, limit):
    """A time limit as seen without a clock: a restart with the probability that time is up in s."""
    clocks = np.zeros((limit, mdp.n_states))
    clocks[0] = mdp.rho
    for k in range(1, limit):
        clocks[k] = clocks[k - 1] @ np.einsum("sa,sat->st", old, mdp.P)
    time_is_up = (clocks[-1] / clocks.sum(0))[:, None, None]
    return TabularMDP((1 - time_is_up) * mdp.P + time_is_up * mdp.rho, mdp.r, mdp.rho, mdp.gamma)


def visits_per_episode(mdp, old, limit):
    state, total = mdp.rho.copy(), np.zeros(mdp.n_states)
    for _ in range(limit or 10_000):
        total += state
        state = np.where(mdp.is_terminal, 0, state @ np.einsum("sa,sat->st", old, mdp.P))
    return total


def supremum_of_the_sampled_objective(new):
    """Of the linear-Gaussian system: the best polynomial g, by quadrature over s, a and the noise of s'."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    weights = weights / weights.sum()
    z, e, xi = (axis.ravel() for axis in np.meshgrid(nodes, nodes, nodes, indexing="ij"))
    weight = np.einsum("i,j,k->ijk", weights, weights, weights).ravel()
    state = SYSTEM.stationary(OLD).std * z
    action = OLD[0] * state + OLD[1] + OLD[2] * e
    successor = SYSTEM.a * state + SYSTEM.b * action + SYSTEM.noise * xi
    return population_fit(
        jax.vmap(POLYNOMIALS),
        [state[:, None], action[:, None], successor[:, None], weight],
        partial(gaussian_mean_features, new, nodes, weights),
        partial(gaussian_mean_features, OLD, nodes, weights),
        SYSTEM.gamma,
    )


def gaussian_mean_features(policy, nodes, weights, states):
    actions = policy[0] * states + policy[1] + policy[2] * nodes[None]
    features = jax.vmap(jax.vmap(POLYNOMIALS, (None, 0)))(states, actions[..., None])
    return jnp.einsum("bmf,m->bf", features, weights)


def tabular_supremum_of_the_sampled_objective(mdp, new, old):
    d, _ = mdp.visitation(old, "restart", mdp.stationary(old))
    s, a, t = (axis.ravel() for axis in np.indices(mdp.P.shape))
    weight = (d[s] * old[s, a] * mdp.P[s, a, t]).ravel()
    one_hot = np.eye(mdp.n_states)
    pair = lambda state, action: jax.vmap(ONE_HOT)(state, action)

    def mean_features(pi, states):
        every = [
            pi[states.argmax(-1), a][:, None] * pair(states, np.full((len(states), 1), a)) for a in range(3)
        ]
        return sum(every)

    return population_fit(
        pair,
        [one_hot[s], a[:, None], one_hot[t], weight],
        partial(mean_features, new),
        partial(mean_features, old),
        mdp.gamma,
    )


def population_fit(features, rows, mean_new, mean_old, gamma):
    with jax.enable_x64(True):
        state, action, successor, weight = (jnp.asarray(part) for part in rows)
        change = mean_new(state) - mean_old(state)
        residual = features(state, action) - gamma * mean_new(successor)
        exact_rows = Rows(change, residual, weight, change[0])
        return float(fit_linear(get_divergence("kl"), exact_rows, 1e-9).value)
