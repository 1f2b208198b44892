"""PPO-DICE's update: PPO to the last bit without its weight, and what each option does to it."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled import AS_SHIPPED
from ppo_dice import discriminator as dice
from ppo_dice.algorithms import ppo, ppo_dice
from ppo_dice.config import DiceConfig, PPODiceConfig
from ppo_dice.divergence import DIVERGENCES
from ppo_dice.types import ActionKind, ObservationKind, Rollout, traced_config
from test_ppo import KINDS, SIZE, make_rollout

LARGE = ActionKind(counts=(17, 17))  # 289 joint actions, more than can be summed over
ALL_KINDS = KINDS | {"large": LARGE}
SMALL = PPODiceConfig(
    n_envs=2,
    n_steps=16,
    n_minibatches=4,
    n_epochs=2,
    hidden_sizes=(8,),
    dice=DiceConfig(hidden_sizes=(8,), discriminator_steps=2),
)
compiled_update = jax.jit(ppo_dice.update)
shipped_update = jax.jit(ppo_dice.update, compiler_options=AS_SHIPPED)
shipped_ppo_update = jax.jit(ppo.update, compiler_options=AS_SHIPPED)


def with_dice(config: PPODiceConfig = SMALL, **settings: Any) -> PPODiceConfig:
    return replace(config, dice=replace(config.dice, **settings))


def make_state(kind: ActionKind, config: PPODiceConfig, seed: int = 0) -> ppo_dice.PPODiceState:
    return ppo_dice.init(ObservationKind(SIZE), kind, jax.random.key(seed), traced_config(config))


def run(
    config: PPODiceConfig,
    kind: ActionKind = KINDS["continuous"],
    update: Any = compiled_update,
) -> Any:
    """The states before and after, and the metrics."""
    before = make_state(kind, config)
    rollout = episodes(make_rollout(before.ppo, config))
    after, metrics = update(before, rollout, jax.random.key(9), traced_config(config))
    return before, after, {tag: float(value) for tag, value in metrics.items()}


def episodes(rollout: Rollout) -> Rollout:
    """The same with the steps of each episode counted."""
    elapsed, ended = np.zeros(rollout.reward.shape, np.int32), np.asarray(rollout.ended)
    for t in range(1, len(elapsed)):
        elapsed[t] = np.where(ended[t - 1], 0, elapsed[t - 1] + 1)
    return replace(rollout, elapsed=jnp.asarray(elapsed))


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_with_a_weight_of_zero_it_is_ppo_to_the_last_bit(kind):
    config = with_dice(coefficient=0.0)
    before, after, metrics = run(config, ALL_KINDS[kind], shipped_update)
    plain = ppo.init(ObservationKind(SIZE), ALL_KINDS[kind], jax.random.key(0), traced_config(config))
    rollout = episodes(make_rollout(plain, config))
    plain, plain_metrics = shipped_ppo_update(plain, rollout, jax.random.key(9), traced_config(config))
    for ours, theirs in zip(leaves(after.ppo), leaves(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for tag, value in plain_metrics.items():
        assert metrics[tag] == pytest.approx(float(value), rel=1e-4, abs=1e-6), tag
    moved = zip(leaves(before.discriminator.network), leaves(after.discriminator.network))
    assert any((a != b).any() for a, b in moved)  # it does train


def test_with_a_weight_it_is_not_ppo():
    without, with_weight = (run(with_dice(coefficient=value))[1].ppo.model for value in (0.0, 1.0))
    assert any((a != b).any() for a, b in zip(leaves(without.policy), leaves(with_weight.policy)))
    for a, b in zip(
        leaves(without.value.body.layers[-1].bias), leaves(with_weight.value.body.layers[-1].bias)
    ):
        np.testing.assert_allclose(a, b, rtol=0.1, atol=1e-2)  # only the norm they share ties them


OPTIONS: dict[str, dict[str, Any]] = {
    **{f"difference {name}": {"divergence": name} for name in DIVERGENCES},
    **{f"paper {name}": {"divergence": name, "form": "paper"} for name in ("kl", "chi2", "kl_paper", "js")},
    "absorbing": {"chain": "absorbing"},
    "absorbing-all": {"chain": "absorbing-all"},
    "paper absorbing": {"form": "paper", "chain": "absorbing"},
    "initial all": {"form": "paper", "initial_states": "all", "known_ratio": False},
    "initial episode": {"form": "paper", "initial_states": "episode", "known_ratio": False},
    "initial rollout": {"form": "paper", "initial_states": "rollout", "known_ratio": False},
    "score": {"policy_gradient": "score"},
    "score-printed": {"policy_gradient": "score-printed", "form": "paper"},
    "four fresh actions": {"action_samples": 4, "state_actions": "fresh"},
    "one action": {"action_samples": 1},
    "adaptive": {"coefficient": "adaptive"},
    "adaptive minibatch raw": {
        "coefficient": "adaptive",
        "adaptive_scope": "minibatch",
        "adaptive_advantages": "raw",
    },
    "target": {"coefficient": "target"},
    "frozen": {"discriminator_steps": 0},
    "own schedule": {"learning_rate_schedule": "constant"},
    "epoch": {"fit_on": "epoch"},
    "epoch resampled": {"fit_on": "epoch", "resample_actions": True},
    "resampled": {"resample_actions": True},
    "warm head": {"recenter": False},
    "penalties": {"orthogonal_penalty": 1e-3, "gradient_penalty": 1e-3, "weight_decay": 1e-2},
    "no clipping": {"max_grad_norm": None},
    "log": {"certificate": "log"},
    "off": {"certificate": "off"},
    "kl_paper absorbing": {"divergence": "kl_paper", "chain": "absorbing-all"},
    "unknown ratio": {"known_ratio": False},
    "alpha below 1": {"divergence": "alpha", "alpha_order": 0.5},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_trains_and_reads_something(option):
    config = with_dice(**OPTIONS[option])
    before, after, metrics = run(config, KINDS["continuous"])
    assert all(np.isfinite(leaf).all() for leaf in leaves(after))
    assert {tag for tag, value in metrics.items() if not np.isfinite(value)} == set()
    assert {"dice/divergence", "dice/coefficient", "dice/penalty"} <= set(metrics)
    assert metrics["train/updates"] == 8
    assert any((a != b).any() for a, b in zip(leaves(before.ppo), leaves(after.ppo)))


@pytest.mark.parametrize("kind", ["discrete", "several", "large"])
@pytest.mark.parametrize("policy_gradient", ["auto", "score", "score-printed"])
def test_discrete_actions_have_every_policy_gradient(kind, policy_gradient):
    _, after, metrics = run(with_dice(policy_gradient=policy_gradient, certificate="log"), ALL_KINDS[kind])
    assert all(np.isfinite(leaf).all() for leaf in leaves(after))
    assert np.isfinite(metrics["dice/divergence"])


def test_nothing_is_read_where_the_policy_does_not_move():
    _, _, metrics = run(replace(with_dice(learning_rate_factor=10.0), learning_rate=0.0))
    assert metrics["dice/divergence"] == pytest.approx(0, abs=1e-6)
    assert metrics["dice/fresh_divergence"] == pytest.approx(0, abs=1e-6)
    assert metrics["dice/safe_upper_bound"] == 0
    assert metrics["dice/valid"] == 1


def test_without_a_network_the_known_ratio_reads_the_divergence_of_the_actions():
    # K = 0 and a head of zeros: g = log π'/π, worth E KL(π'‖π) but for what successors add.
    config = replace(with_dice(discriminator_steps=0, action_samples=8), n_steps=512, learning_rate=1e-3)
    _, _, metrics = run(config)
    assert metrics["dice/fresh_divergence"] == pytest.approx(metrics["policy/kl_new_old"], rel=0.2)
    assert metrics["dice/mean_ratio"] == pytest.approx(1, rel=1e-4)
    _, _, without = run(with_dice(config, known_ratio=False))
    assert without["dice/fresh_divergence"] == 0


def broken(state: ppo_dice.PPODiceState, factor: float) -> ppo_dice.PPODiceState:
    network = jax.tree.map(lambda leaf: factor * (leaf + 1), state.discriminator.network)
    return replace(state, discriminator=replace(state.discriminator, network=network))


@pytest.mark.parametrize("factor", [10.0, 1e30, np.nan])
def test_a_broken_discriminator_cannot_reach_the_policy(factor):
    """Frozen, never recentred at the start, and far from any truth: every reading is refused."""
    config = with_dice(coefficient=5.0, discriminator_steps=0, recenter=False)
    state = broken(make_state(KINDS["continuous"], config), factor)
    one_step = replace(config, n_epochs=1, n_minibatches=1, learning_rate=1e-2)
    rollout = episodes(make_rollout(state.ppo, one_step))
    after, metrics = shipped_update(state, rollout, jax.random.key(0), traced_config(one_step))
    plain, _ = shipped_ppo_update(state.ppo, rollout, jax.random.key(0), traced_config(one_step))
    if float(metrics["dice/valid"]) == 0:
        for ours, theirs in zip(leaves(after.ppo), leaves(plain), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        head = after.discriminator.network.rest.layers[-1]
        assert not np.asarray(head.weight).any()  # it was recentred
    else:
        assert factor == 10.0
    flags = float(metrics["dice/above_bound"]) + float(metrics["dice/below_zero"])
    assert flags + float(metrics["dice/valid"]) == 1


def test_a_discriminator_that_reads_too_much_or_too_little_is_told_apart():
    config = traced_config(SMALL)
    policy = make_state(KINDS["continuous"], SMALL).ppo.model.policy
    old = jax.vmap(policy)(jnp.zeros((8, SIZE)))
    new = eqx.tree_at(lambda one: one.mean, old, old.mean + 0.01)
    bound = float(dice.safe_upper_bound(new, old, config))
    std = np.exp(np.asarray(old.log_std[0]))
    assert bound == pytest.approx((0.01**2 / (2 * std**2)).sum() / (1 - SMALL.gamma), rel=1e-3)
    expected = {0.5 * bound: "dice/valid", 2 * bound: "dice/above_bound", -0.1: "dice/below_zero"}
    expected |= {float("nan"): "dice/above_bound"}
    for value, tag in expected.items():
        flags = dice.certify(jnp.float32(value), new, old, config)
        assert {name for name, flag in flags.items() if float(flag)} == {tag}


def test_no_reading_of_n_rows_exceeds_log_n():
    policy = make_state(KINDS["continuous"], SMALL).ppo.model.policy
    old = jax.vmap(policy)(jnp.zeros((8, SIZE)))
    new = eqx.tree_at(lambda one: one.mean, old, old.mean + 10.0)
    flags = partial(dice.certify, new=new, old=old, config=traced_config(SMALL))
    assert float(flags(jnp.float32(np.log(8) - 0.01))["dice/valid"]) == 1
    assert float(flags(jnp.float32(np.log(8) + 0.01))["dice/above_bound"]) == 1


def test_the_adaptive_weight_is_the_percentile_of_the_advantages():
    state = make_state(KINDS["continuous"], SMALL)
    rollout = episodes(make_rollout(state.ppo, SMALL))
    ppo_state, reward = ppo.scale_rewards(state.ppo, rollout, traced_config(SMALL))
    batch, *_ = ppo.make_batch(
        ppo_state.model, ppo.observe(ppo_state.model, rollout), reward, traced_config(SMALL)
    )
    for kind, advantage in (("normalized", batch.advantage), ("raw", batch.raw_advantage)):
        config = with_dice(coefficient="adaptive", adaptive_advantages=kind, adaptive_percentile=80.0)
        _, _, metrics = run(config)
        expected = np.percentile(np.abs(advantage), 80)
        assert metrics["dice/coefficient"] == pytest.approx(expected, rel=1e-3)
    each = with_dice(coefficient="adaptive", adaptive_scope="minibatch", adaptive_percentile=100.0)
    assert run(each)[2]["dice/coefficient"] < np.abs(batch.advantage).max()  # a mean of smaller maxima


@pytest.mark.parametrize(("target", "sign"), [(1e-6, 1), (1e3, -1)])
def test_dual_ascent_raises_the_weight_above_the_target_and_lowers_it_below(target, sign):
    config = with_dice(coefficient="target", target_divergence=target, target_initial=0.5, target_rate=0.25)
    before, after, metrics = run(replace(config, learning_rate=1e-2))
    assert float(before.coefficient) == metrics["dice/coefficient"] == 0.5
    assert np.log(float(after.coefficient) / 0.5) == pytest.approx(0.25 * sign, rel=1e-3)


def test_a_weight_holds_the_policy_back_and_the_more_the_larger():
    moved = [run(replace(with_dice(coefficient=c), learning_rate=1e-2))[2] for c in (0.0, 1.0, 30.0)]
    distances = [metrics["policy/kl_new_old"] for metrics in moved]
    assert distances[0] > distances[1] > distances[2]


def test_the_discriminator_has_its_own_rate_and_schedule():
    factors = {}
    for schedule in ("policy", "constant", "linear"):
        config = with_dice(learning_rate_schedule=schedule, learning_rate_factor=10.0)
        for policy_schedule in ("constant", "linear"):
            now = replace(config, learning_rate_schedule=policy_schedule).annealed(0.75)
            factors[schedule, policy_schedule] = now.learning_rate * now.dice.learning_rate_factor / 3e-4
    assert factors == pytest.approx(
        {
            ("policy", "constant"): 10,
            ("policy", "linear"): 2.5,
            ("constant", "constant"): 10,
            ("constant", "linear"): 10,
            ("linear", "constant"): 2.5,
            ("linear", "linear"): 2.5,
        }
    )


def test_an_early_stop_calls_off_the_discriminator_as_well():
    eager = replace(with_dice(certificate="log"), learning_rate=0.03, target_kl=0.01)
    _, after, metrics = run(eager)
    assert 1 <= metrics["train/updates"] < 8
    count = next(int(leaf) for leaf in leaves(after.discriminator.optimizer) if leaf.dtype == np.int32)
    assert count == 2 * metrics["train/updates"]


def test_changing_the_weight_compiles_nothing_anew():
    update = jax.jit(lambda *arguments: ppo_dice.update(*arguments))  # a cache of its own
    state = make_state(KINDS["continuous"], SMALL)
    rollout = episodes(make_rollout(state.ppo, SMALL))
    for config in (with_dice(coefficient=0.0), with_dice(coefficient=0.7, learning_rate_factor=3.0)):
        update(state, rollout, jax.random.key(0), traced_config(config))
    assert update._cache_size() == 1
