"""The discriminator that trains: against the truth, against finite differences, and its parts."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice import discriminator as dice
from ppo_dice.config import DiceConfig, PPODiceConfig
from ppo_dice.distributions import (
    Categorical,
    noises_needed,
    printed_support,
    sampled_support,
    score_support,
)
from ppo_dice.networks import CategoricalPolicy, GaussianPolicy, init_discriminator_network, init_mlp
from ppo_dice.tabular import LinearGaussian
from ppo_dice.theory.network import fit_rollout
from ppo_dice.types import ActionKind, ObservationKind, Rollout, traced_config

KEY = jax.random.key(0)
SYSTEM = LinearGaussian(a=0.9, b=0.5, noise=0.05, gamma=0.9)
OLD = (-0.3, 0.0, 0.5)


def readings(new: Any, n_rollouts: int = 5, **settings: Any) -> np.ndarray:
    """D̂ of the network that trains, on rollouts of 2048 steps of π."""
    config = PPODiceConfig(gamma=0.9, dice=DiceConfig(**settings))
    keys = [jax.random.key(k) for k in range(n_rollouts)]
    rollouts = jax.tree.map(lambda *leaf: jnp.stack(leaf), *[SYSTEM.sample(OLD, 2048, key) for key in keys])
    fit = jax.jit(lambda rollout, key: fit_rollout(rollout, new, OLD, key, traced_config(config)))
    return np.asarray(jax.lax.map(lambda both: fit(*both).divergence, (rollouts, jnp.stack(keys))))


def test_the_network_finds_the_divergence_of_a_nearly_deterministic_system():
    new = (-0.36, 0.09, 0.47)
    truth = SYSTEM.divergence(new, OLD)
    found = readings(new)
    assert truth.action < 0.35 * truth.total  # so that the states matter
    assert 0.75 * truth.total < np.median(found) < 1.1 * truth.total


def test_the_network_reads_nothing_at_equal_policies():
    assert np.abs(readings(OLD)).max() < 1e-3


def test_pairs_of_noises_find_what_a_single_sampled_action_loses():
    new = (-0.36, 0.09, 0.47)
    single, pair = (np.median(readings(new, action_samples=m, known_ratio=False)) for m in (1, 2))
    assert single < 0.65 * pair


def some_rollout(rng: np.random.Generator, actions: np.ndarray, n_steps: int = 24) -> Rollout:
    ended = np.zeros((n_steps, 1), bool)
    ended[[7, 15]] = True
    return Rollout(
        obs=rng.normal(size=(n_steps + 1, 1, 3)),
        final_obs=rng.normal(size=(n_steps, 1, 3)) * ended[..., None],
        action=actions,
        reward=np.zeros((n_steps, 1)),
        terminated=ended,
        truncated=np.zeros_like(ended),
        elapsed=(np.arange(n_steps) % 8)[:, None],
    )


def policies() -> dict[str, tuple[Any, ActionKind, Any]]:
    rng = np.random.default_rng(0)
    body = lambda size: init_mlp((3, 8, size), jax.random.key(1), activation="tanh", head_gain=1.0)
    return {
        "gaussian": (
            GaussianPolicy(body(2), jnp.full(2, -0.3)),
            ActionKind(size=2),
            rng.normal(size=(24, 1, 2)),
        ),
        "discrete": (
            CategoricalPolicy(body(3), (3,)),
            ActionKind(counts=(3,)),
            rng.integers(0, 3, size=(24, 1, 1)).astype(np.int32),
        ),
        "several": (
            CategoricalPolicy(body(5), (2, 3)),
            ActionKind(counts=(2, 3)),
            rng.integers(0, 2, size=(24, 1, 2)).astype(np.int32),
        ),
    }


@pytest.mark.parametrize("kind", ["gaussian", "discrete", "several"])
@pytest.mark.parametrize("form", ["difference", "paper"])
@pytest.mark.parametrize("chain", ["restart", "absorbing"])
def test_the_gradient_of_a_reading_is_the_finite_difference(kind, form, chain):
    old, actions, taken = policies()[kind]
    settings = DiceConfig(form=form, chain=chain, known_ratio=False, hidden_sizes=(8,), activation="tanh")
    with jax.enable_x64(True):
        config = jax.tree.map(np.float64, PPODiceConfig(dice=settings, gamma=0.9))
        rng = np.random.default_rng(1)
        in_double = lambda tree: jax.tree.map(
            lambda leaf: (
                jnp.asarray(leaf, jnp.float64)
                if jnp.issubdtype(leaf.dtype, jnp.floating)
                else jnp.asarray(leaf)
            ),
            tree,
        )
        old, rollout = in_double((old, some_rollout(rng, taken)))
        behaviour = jax.vmap(old)(rollout.obs[:-1, 0])
        batch = dice.make_dice_batch(rollout, old, behaviour, KEY, config)
        state = in_double(dice.init_discriminator(ObservationKind(3), actions, KEY, config))
        state = replace(state, network=replace(state.network, absorbing=jnp.float64(0.7)))
        noise = in_double(dice.draw_noise(old, KEY, (24,), config))
        read = dice.reading(state, batch, noise.draw(0), config)
        policy = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape), old)
        direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), policy)

        @jax.jit
        def along(step: Any) -> Any:
            moved = jax.tree.map(lambda leaf, d: leaf + step * d, policy, direction)
            return read(moved, dice.all_states(batch))[0]

        rise = (float(along(1e-5)) - float(along(-1e-5))) / 2e-5
        assert float(jax.grad(along)(0.0)) == pytest.approx(rise, rel=1e-6, abs=1e-9)
        assert abs(rise) > 1e-6


def expectation(logits: Any, g: Any, weigh: Any) -> Any:
    """Σ weight·g of a weighted set of actions."""
    actions, weights = weigh(Categorical(logits[None]))
    return weights @ g[actions[:, 0]]


@pytest.mark.parametrize("estimator", [score_support, printed_support])
def test_score_functions_have_the_value_of_a_sample_and_the_gradient_of_the_expectation(estimator):
    logits, g = jnp.array([0.3, -0.5, 0.9]), jnp.array([1.0, -2.0, 0.5])
    exact = jax.grad(lambda logits: jax.nn.softmax(logits) @ g)(logits)
    noise = jax.random.gumbel(jax.random.key(3), (20_000, 2, 1, 3))
    one = lambda n: jax.value_and_grad(lambda logits: expectation(logits, g, lambda d: estimator(d, n)))(
        logits
    )
    values, gradients = jax.jit(jax.vmap(one))(noise)
    # The SD of a component is below 1.5, that of a mean of 20,000 below .011.
    np.testing.assert_allclose(gradients.mean(0), exact, atol=0.05)
    sampled = lambda n: expectation(logits, g, lambda d: sampled_support(d, n))
    first = noise[:, :1] if estimator is score_support else noise
    np.testing.assert_allclose(values, jax.vmap(sampled)(first), rtol=1e-6)


def test_only_two_actions_are_unbiased_inside_a_convex_function():
    """∇ of E_a[f(g(a))]-like terms: f'(g(a))·∇E g needs an action of its own for the gradient."""
    logits, g = jnp.array([0.3, -0.5, 0.9]), jnp.array([1.0, -2.0, 0.5])
    noise = jax.random.gumbel(jax.random.key(4), (40_000, 2, 1, 3))

    def gradient(estimator: Any) -> Any:
        inside = lambda logits, n: jnp.exp(expectation(logits, g, lambda d: estimator(d, n)))
        return jax.jit(jax.vmap(jax.grad(inside), (None, 0)))(logits, noise).mean(0)

    p = jax.nn.softmax(logits)
    exact = (p @ jnp.exp(g)) * jax.grad(lambda logits: jax.nn.softmax(logits) @ g)(logits)
    np.testing.assert_allclose(gradient(score_support), exact, atol=0.05)
    assert np.abs(gradient(printed_support) - exact).max() > 0.2


def test_as_many_noises_are_drawn_as_are_used():
    assert noises_needed((3,), "auto", 4) == 0
    assert noises_needed((16, 16), "auto", 4) == 0
    assert noises_needed((16, 17), "auto", 4) == 8
    assert noises_needed((), "auto", 4) == noises_needed((3,), "score-printed", 4) == 4
    assert noises_needed((), "score", 4) == noises_needed((3,), "score", 4) == 8


def test_gaussian_noises_come_in_opposite_pairs():
    policy, *_ = policies()["gaussian"]
    config = PPODiceConfig(dice=DiceConfig(action_samples=4))
    noise = dice.draw_noise(policy, KEY, (5, 7), config)
    assert noise.here is None  # that of the actions taken
    assert noise.there.shape == (5, 1, 7, 4, 2)
    np.testing.assert_array_equal(noise.there[..., :2, :], -noise.there[..., 2:, :])


def test_the_two_actions_of_a_score_function_are_independent():
    policy, *_ = policies()["gaussian"]
    config = PPODiceConfig(dice=DiceConfig(policy_gradient="score", action_samples=2))
    first, second = np.split(np.asarray(dice.draw_noise(policy, KEY, (4000,), config).there), 2, axis=2)
    correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
    assert abs(correlation) < 0.05  # the SD of 16,000 independent pairs is .008


def test_resampling_draws_for_every_step_and_for_the_policy():
    policy, *_ = policies()["gaussian"]
    settings = DiceConfig(resample_actions=True, discriminator_steps=3, state_actions="fresh")
    noise = dice.draw_noise(policy, KEY, (7,), PPODiceConfig(dice=settings))
    assert noise.there.shape == noise.here.shape == (4, 7, 2, 2)
    drawn = [np.asarray(noise.draw(k).there) for k in (0, 3, 9)]
    assert (drawn[0] != drawn[1]).any()
    np.testing.assert_array_equal(drawn[1], drawn[2])


@pytest.mark.parametrize("counts", [(), (3,), (2, 4)])
def test_a_discriminator_tells_states_and_actions_apart_and_forgets_with_its_head(counts):
    kind = ActionKind(counts=counts) if counts else ActionKind(size=2)
    network = init_discriminator_network(3, kind, (8, 8), KEY, activation="relu")
    rng = np.random.default_rng(2)
    actions = rng.integers(0, 2, size=(2, len(counts))) if counts else rng.normal(size=(2, 2))
    actions[0] = 0
    if counts:
        actions[1] = 1
    states, actions = jnp.asarray(rng.normal(size=(2, 3)), jnp.float32), jnp.asarray(actions)
    values = [[float(network(s, a)) for a in actions] for s in states]
    assert len(np.unique(np.round(values, 6))) == 4
    recentred = network.recentred()
    assert [float(recentred(s, jnp.asarray(a))) for s in states for a in actions] == [0, 0, 0, 0]
    for kept, same in zip(network.hidden_weights, recentred.hidden_weights, strict=True):
        np.testing.assert_array_equal(kept, same)


def test_the_first_layer_is_orthogonal_over_states_and_actions_together():
    network = init_discriminator_network(11, ActionKind(size=3), (64, 64), KEY, activation="relu")
    first, second = network.hidden_weights
    np.testing.assert_allclose(first.T @ first, 2 * np.eye(14), atol=1e-5)
    np.testing.assert_allclose(second @ second.T, 2 * np.eye(64), atol=1e-5)


def test_initial_states_are_those_asked_for():
    policy, _, taken = policies()["gaussian"]
    rollout = jax.tree.map(jnp.asarray, some_rollout(np.random.default_rng(3), taken))
    firsts = {"rollout": [0], "episode": [0, 8, 16]}
    for kind, steps in firsts.items():
        settings = DiceConfig(form="paper", initial_states=kind, known_ratio=False)
        config = PPODiceConfig(dice=settings)
        behaviour = jax.vmap(policy)(rollout.obs[:-1, 0])
        batch = dice.make_dice_batch(rollout, policy, behaviour, KEY, config)
        drawn = {tuple(row) for row in np.asarray(batch.initial_obs).tolist()}
        assert drawn == {tuple(np.asarray(rollout.obs[t, 0]).tolist()) for t in steps}
