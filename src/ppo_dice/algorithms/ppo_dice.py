"""PPO-DICE, for one seed: PPO, and a divergence of the visitation distributions taken off its objective.

    maximise over π'   L_clip(π') − λ·D_φ(μ'‖μ)

D is read off a discriminator that is fitted to π's own rollout before each step of the policy. All else is
that of `ppo`, whose functions are called: with λ = 0 policy, value and optimiser are PPO's to the last bit.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ppo_dice import discriminator as dice
from ppo_dice import objectives
from ppo_dice.advantages import explained_variance
from ppo_dice.algorithms import ppo
from ppo_dice.config import PPODiceConfig
from ppo_dice.diagnostics import policy_change
from ppo_dice.discriminator import DiceBatch, DiscriminatorState, Features, Noise, Reading
from ppo_dice.distributions import Distribution
from ppo_dice.networks import Policy, encoder_and_head
from ppo_dice.types import ActionKind, Actor, Batch, Key, Metrics, ObservationKind, Rollout

SMALLEST_COEFFICIENT, LARGEST_COEFFICIENT = 1e-6, 1e6
"""Between these the coefficient `target` moves."""


class PPODiceModel(eqx.Module):
    """What is worth keeping of a trained agent: PPO's networks and statistics, and the discriminator."""

    ppo: ppo.PPOModel
    discriminator: Any

    @property
    def actor(self) -> Actor:
        """All that is needed to act."""
        return self.ppo.actor


class PPODiceState(eqx.Module):
    """Everything that evolves while PPO-DICE trains."""

    ppo: ppo.PPOState
    discriminator: DiscriminatorState
    coefficient: Float[Array, ""]
    """The λ that dual ascent moves; unused where λ is a number or adaptive."""

    @property
    def model(self) -> PPODiceModel:
        """What is worth keeping."""
        return PPODiceModel(self.ppo.model, self.discriminator.network)


def init(observation: ObservationKind, actions: ActionKind, key: Key, config: PPODiceConfig) -> PPODiceState:
    """PPO's state for this key, and a fresh discriminator."""
    return PPODiceState(
        ppo=ppo.init(observation, actions, key, config),
        discriminator=dice.init_discriminator(observation, actions, _dice_key(key), config),
        coefficient=jnp.asarray(config.dice.target_initial, jnp.float32),
    )


def update(
    state: PPODiceState, rollout: Rollout, key: Key, config: PPODiceConfig
) -> tuple[PPODiceState, Metrics]:
    """One iteration: on shuffled minibatches, fit the discriminator and move policy and value."""
    ppo_state, reward = ppo.scale_rewards(state.ppo, rollout, config)
    seen = ppo.observe(ppo_state.model, rollout)
    batch, behaviour, value = ppo.make_batch(ppo_state.model, seen, reward, config)
    seen = replace(seen, terminated=ppo.terminations(seen, config))
    draw_key, noise_key, epoch_key, final_key = jax.random.split(_dice_key(key), 4)
    dice_batch = dice.make_dice_batch(seen, ppo_state.model.policy, behaviour, draw_key, config)
    coefficient = batch_coefficient(state, batch, config)
    state = replace(state, ppo=ppo_state, discriminator=dice.begin_iteration(state.discriminator, config))

    def epoch(carry: tuple[PPODiceState, Bool[Array, ""]], inputs: Any) -> tuple[Any, Metrics]:
        state, running = carry
        if config.dice.fit_on == "epoch":
            encoder, head = encoder_and_head(state.ppo.model.policy)
            features = encoder(dice.all_states(dice_batch))
            fitted = dice.fit(state.discriminator, head, features, dice_batch, inputs.whole, config)[0]
            state = keep_if(running, replace(state, discriminator=fitted), state)
        return jax.lax.scan(step, (state, running), (inputs.rows, inputs.noise))

    def step(carry: tuple[PPODiceState, Bool[Array, ""]], inputs: Any) -> tuple[Any, Metrics]:
        state, running = carry
        rows, noise = inputs
        minibatch, old = jax.tree.map(lambda leaf: leaf[rows], (batch, behaviour))
        part = dice.take(dice_batch, rows, config.block_length)
        proposal, metrics = step_on_minibatch(state, minibatch, old, part, noise, coefficient, config)
        if config.target_kl is not None:
            running &= metrics["train/approx_kl"] <= 1.5 * config.target_kl
        state = keep_if(running, proposal, state)
        return (state, running), metrics | {"train/updates": running.astype(jnp.float32)}

    policy = state.ppo.model.policy
    inputs = _Inputs(
        rows=ppo.shuffled_rows(key, config),
        noise=dice.draw_noise(
            policy, noise_key, (config.n_epochs, config.n_minibatches, config.minibatch_size), config
        ),
        whole=dice.draw_noise(policy, epoch_key, (config.n_epochs, config.batch_size), config)
        if config.dice.fit_on == "epoch"
        else None,
    )
    (state, _), history = jax.lax.scan(epoch, (state, jnp.asarray(True)), inputs)
    history = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), history)

    encoder, head = encoder_and_head(state.ppo.model.policy)
    features = encoder(dice.all_states(dice_batch))
    after = jax.vmap(head)(features[: config.batch_size])
    change = policy_change(behaviour, after, batch.action)
    metrics = ppo.mean_over_updates(history) | change
    metrics["train/explained_variance"] = explained_variance(value, batch.value_target)
    ppo_state = ppo.finish_iteration(state.ppo, rollout, change["policy/kl_old_new"], config)
    state, dice_metrics = finish_iteration(
        replace(state, ppo=ppo_state), after, features, dice_batch, final_key, config
    )
    return state, metrics | dice_metrics


class _Inputs(eqx.Module):
    """What an epoch consumes; leaves have a leading [epochs]."""

    rows: Any
    noise: Noise
    whole: Noise | None


def step_on_minibatch(
    state: PPODiceState,
    minibatch: Batch,
    behaviour: Distribution,
    dice_batch: DiceBatch,
    noise: Noise,
    coefficient: Float[Array, ""],
    config: PPODiceConfig,
) -> tuple[PPODiceState, Metrics]:
    """Fit the discriminator, then one gradient step of policy and value."""
    policy = state.ppo.model.policy
    sight, head = ppo.look(policy, dice.all_states(dice_batch)), encoder_and_head(policy)[1]
    if config.dice.fit_on == "minibatch":
        fitted, reading, fit_metrics = dice.fit(
            state.discriminator, head, sight.features, dice_batch, noise, config
        )
    else:
        fitted, fit_metrics = state.discriminator, {}
        reading = dice.reading(fitted, dice_batch, noise.draw(config.dice.discriminator_steps), config)
    if config.dice.coefficient == "adaptive" and config.dice.adaptive_scope == "minibatch":
        coefficient = adaptive_coefficient(minibatch, config)

    def regularizer(head: Policy, sight: ppo.Sight) -> tuple[tuple[Any, ...], Metrics]:
        return penalty_gradient(reading, head, sight, dice_batch, coefficient, config)

    ppo_state, metrics = ppo.update_policy(state.ppo, minibatch, behaviour, config, regularizer, sight)
    if config.dice.certificate == "gate":
        fitted = keep_if(metrics["dice/valid"] > 0, fitted, dice.recentre(fitted, config))
    return replace(state, ppo=ppo_state, discriminator=fitted), metrics | fit_metrics


def penalty_gradient(
    reading: Reading,
    head: Policy,
    sight: ppo.Sight,
    dice_batch: DiceBatch,
    coefficient: Float[Array, ""],
    config: PPODiceConfig,
) -> tuple[tuple[Any, ...], Metrics]:
    """∇(λ·D̂), or zero where the certificate proves D̂ wrong."""
    read = jax.value_and_grad(reading, argnums=sight.differentiated, has_aux=True)
    (divergence, new), gradient = read(head, sight.features)
    checks = dice.certify(divergence, new, dice_batch.old, config) if config.dice.certificate != "off" else {}
    counts = checks["dice/valid"] > 0 if config.dice.certificate == "gate" else jnp.asarray(True)
    gradient = jax.tree.map(lambda slope: jnp.where(counts, coefficient * slope, 0), gradient)
    metrics = {
        "dice/divergence": divergence,
        "dice/coefficient": coefficient,
        "dice/penalty": jnp.where(counts, coefficient * divergence, 0),
    }
    return gradient, metrics | checks


def batch_coefficient(state: PPODiceState, batch: Batch, config: PPODiceConfig) -> Float[Array, ""]:
    """λ of this iteration."""
    if config.dice.coefficient == "target":
        return state.coefficient
    if config.dice.coefficient == "adaptive":
        return adaptive_coefficient(batch, config)
    return jnp.asarray(config.dice.coefficient, jnp.float32)


def adaptive_coefficient(batch: Batch, config: PPODiceConfig) -> Float[Array, ""]:
    """A percentile of |Â|."""
    raw = config.dice.adaptive_advantages == "raw"
    advantage = batch.raw_advantage if raw else batch.advantage
    return objectives.adaptive_coefficient(advantage, config.dice.adaptive_percentile)


def finish_iteration(
    state: PPODiceState,
    after: Distribution,
    features: Features,
    dice_batch: DiceBatch,
    key: Key,
    config: PPODiceConfig,
) -> tuple[PPODiceState, Metrics]:
    """Read D̂ off the whole batch on fresh noise, certify it, and let dual ascent move λ.

    log λ ← log λ + rate·clip(D̂/target − 1, −1, 1)
    """
    metrics = {"dice/learning_rate": config.learning_rate * config.dice.learning_rate_factor}
    if config.dice.certificate == "off" and config.dice.coefficient != "target":
        return state, metrics
    policy = state.ppo.model.policy
    noise = dice.draw_noise(policy, key, (config.batch_size,), config).draw(0)
    head = encoder_and_head(policy)[1]
    divergence, rows = dice.read(state.discriminator.network, head, features, dice_batch, noise, config)
    if config.dice.certificate != "off":
        metrics |= dice.whole_batch_certificate(rows, divergence, after, dice_batch.old, config)
    if config.dice.coefficient == "target":
        excess = jnp.clip(divergence / config.dice.target_divergence - 1, -1, 1)
        excess = jnp.nan_to_num(excess)  # a broken reading moves nothing
        moved = state.coefficient * jnp.exp(config.dice.target_rate * excess)
        moved = jnp.clip(moved, SMALLEST_COEFFICIENT, LARGEST_COEFFICIENT)
        state = replace(state, coefficient=moved)
    return state, metrics


def keep_if(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    """One of two trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _dice_key(key: Key) -> Key:
    """A key of our own, so that PPO's draws stay what they are without us."""
    return jax.random.fold_in(key, 1)
