"""Chains against plain loops, and what consistency means: nothing to win at equal policies."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice.chains import CHAINS, evaluate_rows, transitions
from ppo_dice.divergence import difference_form, get_divergence, paper_form
from ppo_dice.linear_discriminator import fit_linear
from ppo_dice.networks import init_mlp
from ppo_dice.tabular import LinearGaussian, garnet, random_policy
from ppo_dice.tabular.estimation import choices_of, gaussian_policy, one_hot_features, tabular_policy
from ppo_dice.types import Rollout

GAMMA = 0.9
KL = get_divergence("kl")


def rollout_of(*episodes):
    """One environment; an episode is (its states, how it ended), its last state being where it ended."""
    obs, final, terminated, truncated, elapsed = [], [], [], [], []
    for states, end in episodes:
        steps = len(states) - 1
        obs += states[:-1]
        final += [0.0] * (steps - 1) + [states[-1] if end else 0.0]
        terminated += [False] * (steps - 1) + [end == "terminated"]
        truncated += [False] * (steps - 1) + [end == "truncated"]
        elapsed += range(steps)
    obs.append(episodes[-1][0][-1] if episodes[-1][1] is None else 99.0)
    column = lambda values, dtype: np.asarray(values, dtype)[:, None]
    n_steps = len(final)
    return Rollout(
        obs=column(obs, np.float32)[..., None],
        final_obs=column(final, np.float32)[..., None],
        action=np.zeros((n_steps, 1, 1), np.float32),
        reward=np.zeros((n_steps, 1), np.float32),
        terminated=column(terminated, bool),
        truncated=column(truncated, bool),
        elapsed=column(elapsed, np.int32),
    )


ROLLOUT = rollout_of(([1, 2, 3], "terminated"), ([4, 5, 6, 7], "truncated"), ([8, 9, 10], None))


def test_the_restart_chain_by_hand():
    steps = transitions(ROLLOUT, GAMMA, "restart")
    np.testing.assert_array_equal(steps.obs[:, 0], [1, 2, 4, 5, 6, 8, 9])
    np.testing.assert_array_equal(steps.next_obs[:, 0], [2, 4, 5, 6, 8, 9, 10])
    np.testing.assert_allclose(steps.weight, 1 / 7)
    np.testing.assert_allclose(steps.inflow, (1 - GAMMA) / 7, rtol=1e-6)
    assert not steps.absorbed.any()
    assert not steps.absorbing_weight.any()


@pytest.mark.parametrize("chain", ["absorbing", "absorbing-all"])
def test_the_absorbing_chains_by_hand(chain):
    steps = transitions(ROLLOUT, GAMMA, chain)
    np.testing.assert_array_equal(steps.next_obs[:, 0], [2, 3, 5, 6, 7, 9, 10])
    np.testing.assert_array_equal(steps.absorbed, [0, 1, 0, 0, 0, 0, 0])
    k = np.array([0, 1, 0, 1, 2, 0, 1])
    if chain == "absorbing":
        weight, absorbing = (1 - GAMMA) * GAMMA**k, GAMMA**2
    else:
        weight, absorbing = 1 - GAMMA ** (k + 1), GAMMA * (1 - GAMMA**2) / (1 - GAMMA)
    total = weight.sum() + absorbing
    np.testing.assert_allclose(steps.weight, weight / total, rtol=1e-6)
    np.testing.assert_allclose(steps.absorbing_weight, np.eye(7)[1] * absorbing / total, rtol=1e-6)


def finite_problem(chain, seed=0):
    mdp = garnet(6, 3, 3, GAMMA, seed, n_terminal=1)
    old, new = (0.1 / 3 + 0.9 * random_policy(mdp, place) for place in (1, 2))
    rollout = mdp.sample(old, 300, jax.random.key(seed), n_envs=2, max_episode_steps=12)
    return tabular_policy(new), tabular_policy(old), transitions(rollout, GAMMA, chain)


def finite_rows(g, steps, new, old):
    noise = (jnp.zeros((len(steps.obs), 0)),) * 2
    features = one_hot_features(3)
    linear_g = lambda s, a: features(s, a) @ g
    return evaluate_rows(linear_g, g[-1], steps, choices_of(steps, new, old, noise), GAMMA)


@pytest.mark.parametrize("chain", CHAINS)
def test_nothing_can_be_won_at_equal_policies_and_the_policy_gradient_vanishes_with_g(chain):
    _, old, steps = finite_problem(chain)

    def value(policy, g):
        return difference_form(KL, *finite_rows(g, steps, policy, old)[:3])

    rng = np.random.default_rng(0)
    for _ in range(20):
        assert value(old, jnp.asarray(rng.normal(size=19), jnp.float32)) < 1e-6
    constant = jnp.ones(19)
    assert abs(value(old, constant)) < 1e-6
    np.testing.assert_allclose(jax.grad(value)(old, constant).logits, 0, atol=1e-6)


@pytest.mark.parametrize("chain", CHAINS)
def test_the_flow_of_a_value_function_balances_on_every_chain(chain):
    """Where g(s,a) = V(s) the initial term is the mean residual: no chain has a hole in it."""
    _, old, steps = finite_problem(chain)
    state_value = np.random.default_rng(1).normal(size=6)
    g = jnp.asarray(np.append(np.repeat(state_value, 3), 0.7), jnp.float32)
    rows = finite_rows(g, steps, old, old)
    slack = 2 * 2 * GAMMA * np.abs(state_value).max() / 600 if chain == "restart" else 1e-6
    assert abs(rows.initial - rows.weight @ rows.residual) <= slack  # a rollout's two ends do not match


def test_the_naive_mask_lets_a_constant_win_at_equal_policies():
    """Uniform weights and γ·0 after the end: g = −∞ reads −log(1 − p), p the share of terminal steps."""
    _, old, steps = finite_problem("absorbing")
    uniform = jnp.full_like(steps.weight, 1 / len(steps.weight))
    none = jnp.zeros_like(uniform)
    masked = dataclasses.replace(
        steps, weight=uniform, absorbing_weight=none, inflow=(1 - GAMMA) * uniform, outflow=none
    )
    constant = jnp.full(19, -50.0).at[-1].set(0.0)
    rows = finite_rows(constant, masked, old, old)
    found = paper_form(KL, rows.initial, rows.residual, rows.weight)
    assert found == pytest.approx(-np.log1p(-np.mean(steps.absorbed)), rel=0.02)
    assert found > 0.05


def test_the_literal_algorithm_sees_a_divergence_and_a_gradient_at_equal_policies():
    """Only the first state is initial, and every visited one counts the same."""
    _, old, steps = finite_problem("restart")
    literal = dataclasses.replace(steps, inflow=jnp.zeros_like(steps.inflow).at[0].set(1 - GAMMA))

    def value(policy, steps, g):
        rows = finite_rows(g, steps, policy, old)
        return paper_form(KL, rows.initial, rows.residual, rows.weight)

    def best_g(steps):
        return fit_linear(KL, finite_rows(jnp.eye(19), steps, old, old), form="paper").weights

    noise = value(old, steps, best_g(steps))  # what 600 samples of actions leave to win
    found = value(old, literal, best_g(literal))
    assert found > 3 * noise > 0
    slope = jax.grad(value)(old, literal, best_g(literal)).logits
    assert np.abs(slope).max() > 0.01


@pytest.mark.parametrize("chain", CHAINS)
def test_the_closed_form_policy_gradient_of_discrete_actions_is_the_finite_difference(chain):
    with jax.enable_x64(True):
        new, old, steps = finite_problem(chain)
        new, old, steps = jax.tree.map(in_float64, (new, old, steps))
        g = jnp.asarray(np.random.default_rng(3).normal(size=19))

        def value(logits):
            policy = dataclasses.replace(new, logits=logits)
            return difference_form(KL, *finite_rows(g, steps, policy, old)[:3])

        assert_gradient(value, new.logits)


def test_the_reparametrised_policy_gradient_of_gaussian_actions_is_the_finite_difference():
    system, old = LinearGaussian(0.9, 0.5, 0.3, GAMMA), (-0.3, 0.0, 0.5)
    rollout = system.sample(old, 100, jax.random.key(0), n_envs=2, max_episode_steps=25)
    network = init_mlp((2, 16, 1), jax.random.key(1), activation="tanh", head_gain=1.0)
    with jax.enable_x64(True):
        steps, network = jax.tree.map(in_float64, (transitions(rollout, GAMMA), network))
        noise = tuple(np.random.default_rng(4).normal(size=(2, 200, 8, 1)))
        new = in_float64(jnp.array([-0.4, 0.15, 0.45]))
        old_policy = jax.tree.map(in_float64, gaussian_policy(old))

        def value(parameters):
            policy = dataclasses.replace(old_policy, parameters=parameters)
            g = lambda s, a: network(jnp.concatenate([s, a]))[0]
            choices = choices_of(steps, policy, old_policy, noise)
            rows = evaluate_rows(g, jnp.zeros(()), steps, choices, GAMMA)
            return difference_form(KL, *rows[:3])

        assert_gradient(value, new)


def in_float64(leaf):
    return jnp.asarray(leaf, jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.asarray(leaf)


def assert_gradient(value, at):
    gradient = jax.grad(value)(at)
    rng = np.random.default_rng(5)
    for _ in range(5):
        direction = jnp.asarray(rng.normal(size=at.shape))
        rise = value(at + 1e-5 * direction) - value(at - 1e-5 * direction)
        np.testing.assert_allclose(jnp.sum(gradient * direction), rise / 2e-5, rtol=1e-6, atol=1e-10)
