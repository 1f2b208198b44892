from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice.algorithms import ppo
from ppo_dice.config import PPOConfig
from ppo_dice.normalization import normalize
from ppo_dice.types import ActionKind, Batch, ObservationKind, Rollout, traced_config

STEPS, ENVS, SIZE = 16, 2, 3
KINDS = {
    "continuous": ActionKind(size=2),
    "discrete": ActionKind(counts=(3,)),
    "several": ActionKind(counts=(2, 4)),
}
SMALL = PPOConfig(n_envs=ENVS, n_steps=STEPS, n_minibatches=4, n_epochs=3, hidden_sizes=(8,))
compiled_update = jax.jit(ppo.update)


def make_state(kind: ActionKind, config: PPOConfig, seed: int = 0) -> ppo.PPOState:
    return ppo.init(ObservationKind(SIZE), kind, jax.random.key(seed), traced_config(config))


def make_rollout(state: ppo.PPOState, config: PPOConfig, seed: int = 0) -> Rollout:
    """Random observations and rewards, with the actions that the policy takes; some episodes end."""
    rng = np.random.default_rng(seed)
    steps, envs = config.n_steps, config.n_envs
    obs = rng.normal(size=(steps + 1, envs, SIZE)).astype(np.float32)
    noise = state.model.policy.noise(jax.random.key(seed + 1), (steps, envs))
    act = jax.jit(jax.vmap(jax.vmap(lambda o, n: state.model.actor(o).sample(n))))
    terminated = rng.random((steps, envs)) < 0.1
    truncated = (rng.random((steps, envs)) < 0.1) & ~terminated
    final_obs = rng.normal(size=(steps, envs, SIZE)).astype(np.float32)
    final_obs *= (terminated | truncated)[..., None]
    return Rollout(
        obs=jnp.asarray(obs),
        final_obs=jnp.asarray(final_obs),
        action=act(obs[:-1], noise),
        reward=jnp.asarray(rng.normal(1, 2, size=(steps, envs)).astype(np.float32)),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        elapsed=jnp.zeros((steps, envs), jnp.int32),
    )


def run(config: PPOConfig, kind: ActionKind = KINDS["continuous"]) -> tuple[Any, Any, Any, Rollout]:
    state = make_state(kind, config)
    rollout = make_rollout(state, config)
    after, metrics = compiled_update(state, rollout, jax.random.key(9), traced_config(config))
    return state, after, metrics, rollout


@jax.jit
def batch_of(model: ppo.PPOModel, rollout: Rollout, config: PPOConfig) -> Any:
    return ppo.make_batch(model, ppo.observe(model, rollout), rollout.reward, config)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ratio_is_exactly_one_until_the_first_gradient_step(kind):
    # With a learning rate of zero every minibatch is a first minibatch.
    _, _, metrics, _ = run(replace(SMALL, learning_rate=0.0), KINDS[kind])
    assert float(metrics["train/approx_kl"]) == 0
    assert float(metrics["train/clip_fraction"]) == 0
    assert float(metrics["policy/max_ratio"]) == 1
    assert float(metrics["policy/kl_old_new"]) == float(metrics["policy/kl_new_old"]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_moves_the_policy_and_says_how_far(kind):
    state, after, metrics, _ = run(SMALL, KINDS[kind])
    assert float(metrics["train/updates"]) == 12
    assert float(metrics["policy/kl_old_new"]) > 0
    assert float(metrics["policy/max_kl_new_old"]) >= float(metrics["policy/kl_new_old"]) > 0
    assert float(metrics["policy/max_ratio"]) > 1
    moved = [
        bool((a != b).any())
        for a, b in zip(jax.tree.leaves(state.model.policy), jax.tree.leaves(after.model.policy))
    ]
    assert all(moved)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("surrogate", "kl_penalty"), [("clipped", "none"), ("unclipped", "fixed")])
def test_the_gradient_equals_finite_differences(kind, surrogate, kl_penalty):
    config = replace(SMALL, surrogate=surrogate, kl_penalty=kl_penalty, ent_coef=0.1, activation="tanh")
    with jax.enable_x64(True):
        state = make_state(KINDS[kind], config)
        rollout = make_rollout(state, config)
        seen = ppo.observe(state.model, rollout)
        batch, behaviour, _ = ppo.make_batch(state.model, seen, rollout.reward, traced_config(config))
        to_double = lambda leaf: leaf.astype(np.float64) if jnp.issubdtype(leaf.dtype, np.floating) else leaf
        batch, behaviour, networks = jax.tree.map(
            to_double, (batch, behaviour, (state.model.policy, state.model.value))
        )
        rng = np.random.default_rng(0)
        # Away from the old policy, or the penalty and the clipping would have no gradient to check.
        networks = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape), networks)
        direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), networks)
        numbers = jax.tree.map(np.float64, config)

        @jax.jit
        def along(step: Any) -> Any:
            moved = jax.tree.map(lambda leaf, d: leaf + step * d, networks, direction)
            return ppo.loss(moved, batch.obs, batch, behaviour, jnp.float64(0.7), numbers)[0]

        slope = float(jax.grad(along)(0.0))
        h = 1e-6
        assert slope == pytest.approx((float(along(h)) - float(along(-h))) / (2 * h), rel=1e-5, abs=1e-7)


def test_the_loss_is_the_sum_of_its_parts():
    config = replace(SMALL, ent_coef=0.3, vf_coef=0.7, kl_penalty="fixed", kl_coef=2.0)
    _, _, metrics, _ = run(config)
    parts = (
        0.7 * metrics["train/value_loss"]
        + metrics["train/policy_gradient_loss"]
        + 0.3 * metrics["train/entropy_loss"]
        + metrics["train/kl_penalty"]
    )
    assert float(metrics["train/loss"]) == pytest.approx(float(parts), rel=1e-4)


@pytest.mark.parametrize("time_limits", ["bootstrap", "terminate"])
@pytest.mark.parametrize("value_target", ["gae", "n-step"])
def test_the_batch_equals_the_plain_loop(time_limits, value_target):
    config = replace(SMALL, time_limits=time_limits, value_target=value_target, standardize_advantages=False)
    state = make_state(KINDS["continuous"], config)
    rollout = make_rollout(state, config)
    numbers = traced_config(config)
    batch, _, value = batch_of(state.model, rollout, numbers)
    judge = jax.jit(lambda obs: state.model.value(state.model.normalizer(obs)))
    for env in range(ENVS):
        advantage = later_return = None
        for t in reversed(range(STEPS)):
            terminated = bool(rollout.terminated[t, env])
            ended = terminated or bool(rollout.truncated[t, env])
            next_obs = rollout.final_obs[t, env] if ended else rollout.obs[t + 1, env]
            stops = ended if time_limits == "terminate" else terminated
            bootstrap = 0.0 if stops else 0.99 * float(judge(next_obs))
            here = float(judge(rollout.obs[t, env]))
            delta = float(rollout.reward[t, env]) + bootstrap - here
            advantage = delta + (0.0 if ended or advantage is None else 0.99 * 0.95 * advantage)
            goes_on = not ended and later_return is not None
            later_return = float(rollout.reward[t, env]) + (0.99 * later_return if goes_on else bootstrap)
            row = t * ENVS + env
            target = advantage + here if value_target == "gae" else later_return
            assert float(batch.advantage[row]) == pytest.approx(advantage, rel=1e-4, abs=1e-4)
            assert float(batch.value_target[row]) == pytest.approx(target, rel=1e-4, abs=1e-4)
            assert float(value[row]) == pytest.approx(here, rel=1e-5, abs=1e-5)


def test_target_kl_calls_off_the_rest_of_the_iteration():
    eager = replace(SMALL, learning_rate=0.03, target_kl=0.01)
    _, _, metrics, _ = run(eager)
    assert 1 <= float(metrics["train/updates"]) < 12
    _, _, unbounded, _ = run(replace(eager, target_kl=None))
    assert float(unbounded["policy/kl_old_new"]) > float(metrics["policy/kl_old_new"])


def test_a_kl_penalty_holds_the_policy_back():
    _, _, free, _ = run(replace(SMALL, learning_rate=0.01))
    _, _, held, _ = run(replace(SMALL, learning_rate=0.01, kl_penalty="fixed", kl_coef=30.0))
    assert float(held["policy/kl_old_new"]) < 0.5 * float(free["policy/kl_old_new"])


@pytest.mark.parametrize(("target", "factor"), [(1e-6, 2.0), (1e3, 0.5)])
def test_the_adaptive_penalty_is_doubled_or_halved(target, factor):
    state, after, _, _ = run(replace(SMALL, kl_penalty="adaptive", kl_coef=1.5, kl_target=target))
    assert float(state.kl_coef) == 1.5
    assert float(after.kl_coef) == 1.5 * factor


def test_observation_statistics_are_frozen_within_an_iteration_and_then_take_it_in():
    state, after, _, rollout = run(SMALL)
    seen = np.asarray(rollout.obs[:-1]).reshape(-1, SIZE)
    np.testing.assert_allclose(after.model.normalizer.moments.mean, seen.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.model.normalizer.moments.variance, seen.var(0), rtol=1e-4)
    batch, *_ = batch_of(after.model, rollout, traced_config(SMALL))
    expected = normalize(after.model.normalizer.moments, rollout.obs[0, 0], jnp.float32(10))
    np.testing.assert_allclose(batch.obs[0], expected, rtol=1e-4, atol=1e-6)
    untouched = run(replace(SMALL, normalize_observations=False))[1]
    assert float(untouched.model.normalizer.moments.count) == 0


def test_rewards_are_divided_by_the_spread_of_the_discounted_return():
    state = make_state(KINDS["continuous"], SMALL)
    rollout = make_rollout(state, SMALL)
    after, scaled = jax.jit(ppo.scale_rewards)(state, rollout, traced_config(SMALL))
    returns, running = [], np.zeros(ENVS)
    for t in range(STEPS):
        running = np.asarray(rollout.reward[t]) + 0.99 * running
        returns.append(running)
        running = np.where(rollout.ended[t], 0.0, running)
    np.testing.assert_allclose(scaled, np.asarray(rollout.reward) / np.std(returns), rtol=1e-3)
    np.testing.assert_allclose(after.return_so_far, running, rtol=1e-3, atol=1e-4)
    _, raw = ppo.scale_rewards(state, rollout, traced_config(replace(SMALL, normalize_rewards=False)))
    np.testing.assert_array_equal(raw, rollout.reward)


def test_changing_a_number_compiles_nothing_anew():
    update = jax.jit(lambda *arguments: ppo.update(*arguments))  # a cache of its own
    state = make_state(KINDS["continuous"], SMALL)
    rollout = make_rollout(state, SMALL)
    before = {field: getattr(SMALL, field) for field in ("learning_rate", "gamma", "clip_range", "ent_coef")}
    for config in (SMALL, replace(SMALL, **{field: value / 2 for field, value in before.items()})):
        update(state, rollout, jax.random.key(0), traced_config(config))
    assert update._cache_size() == 1


def test_the_gradient_is_clipped_for_policy_and_value_together():
    # The first Adam step is −lr·g/(|g| + ε′) whatever the norm, so look at the moment it keeps: (1 − β₁)·g.
    config = replace(SMALL, n_epochs=1, n_minibatches=1, max_grad_norm=1e-3, adam_eps=1.0)
    _, after, metrics, _ = run(config)
    first_moment = next(s for s in jax.tree.leaves(after.optimizer, is_leaf=_is_adam) if _is_adam(s)).mu
    norm = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(first_moment)))
    assert norm == pytest.approx(0.1 * 1e-3, rel=1e-3)
    together = np.hypot(float(metrics["train/policy_grad_norm"]), float(metrics["train/value_grad_norm"]))
    assert together > 1e-3


def _is_adam(node: Any) -> bool:
    return hasattr(node, "mu")


def test_mean_over_updates_counts_only_steps_taken():
    history = {"train/updates": jnp.array([1.0, 1.0, 0.0]), "x": jnp.array([1.0, 3.0, 99.0])}
    means = ppo.mean_over_updates(history)
    assert float(means["x"]) == 2
    assert float(means["train/updates"]) == 2
    none = {"train/updates": jnp.zeros(3), "x": jnp.array([5.0, 1.0, 1.0])}
    assert float(ppo.mean_over_updates(none)["x"]) == 5


def test_a_batch_of_the_wrong_shape_is_refused_while_testing():
    with pytest.raises(Exception, match="type"):
        Batch(jnp.zeros((4, 3)), jnp.zeros((4, 2)), jnp.zeros(4), jnp.zeros(5), jnp.zeros(4), jnp.zeros(4))
