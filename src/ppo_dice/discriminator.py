"""Fit the discriminator g, a network, and read the divergence off it: K Adam steps before each policy step.

`fit(state, head, features, batch, …) → (state, reading, metrics)` is what an algorithm calls; `reading(head,
features)` is D̂ at the g that was fitted, a differentiable function of π': of its head, and of the features
that it reads. Other kinds of discriminator keep to the same.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from ppo_dice.chains import Choices, Rows, Transitions, choose_actions, evaluate_rows, take_rows, transitions
from ppo_dice.config import DiceConfig, PPODiceConfig
from ppo_dice.distributions import Distribution, Support, kl_divergence, noises_needed, support
from ppo_dice.divergence import (
    Divergence,
    density_ratio,
    difference_form,
    get_divergence,
    largest_certifiable,
    paper_form,
)
from ppo_dice.networks import (
    PixelDiscriminator,
    Policy,
    act_in_rows,
    init_discriminator_network,
    init_encoder,
    n_features,
)
from ppo_dice.types import ActionKind, Key, Metrics, ObservationKind, Rollout, register_config

register_config(DiceConfig)
register_config(PPODiceConfig)


Features = Shaped[Array, "B_all F"]
"""What π' reads in `all_states` of a batch."""


class DiscriminatorState(eqx.Module):
    """g, and the optimiser that moves it."""

    network: Any
    optimizer: optax.OptState


class DiceBatch(eqx.Module):
    """What the divergence needs of a rollout, in rows."""

    steps: Transitions
    old: Distribution
    """π(·|s) in every row."""
    old_next: Distribution | None
    """π(·|s') in every row, where the ratio π'/π is part of g."""
    initial_obs: Shaped[Array, "B *O"] | None
    """Initial states for the paper's form, where they are not those of the chain."""
    block_length: int = eqx.field(static=True, default=1)
    """Rows of which each but the last has the next one's state as its successor."""


class Noise(NamedTuple):
    """What decides the actions over which g is averaged: in states, in successors and in initial states.

    None stands for no need of any, and in states for the noise of the action that was taken. The leading axis
    is as long as there are draws: one, or one for each of the K steps and one for the policy's.
    """

    here: Float[Array, "D B M ..."] | None
    there: Float[Array, "D B M ..."]
    initial: Float[Array, "D B M ..."] | None

    def draw(self, number: int) -> "Noise":
        """One draw, the last one where there are not so many."""
        drawn: Noise = jax.tree.map(lambda part: part[min(number, len(part) - 1)], self)
        return drawn


class InStates(NamedTuple):
    """Something of every state, of every successor and of every initial state, if there are such."""

    here: Any
    there: Any
    initial: Any


Reading = Callable[[Policy, Features], tuple[Float[Array, ""], Distribution]]
"""D̂ as a function of π', of its head and what it reads; and π'(·|s) in every row."""


def init_discriminator(
    observation: ObservationKind, actions: ActionKind, key: Key, config: PPODiceConfig
) -> DiscriminatorState:
    """A fresh network and an optimiser at rest."""
    dice = config.dice
    make_divergence(config)  # refuses what there is not, before any work
    network: Any = init_discriminator_network(
        n_features(observation, config), actions, dice.hidden_sizes, key, activation=dice.activation
    )
    if observation.images:
        own = dice.encoder == "own"
        encoder = init_encoder(observation, config, jax.random.fold_in(key, 1)) if own else None
        network = PixelDiscriminator(encoder, network)
    return DiscriminatorState(network, _optimizer(config).init(network))


def begin_iteration(state: DiscriminatorState, config: PPODiceConfig) -> DiscriminatorState:
    """A constant g on warm features, if asked for: where an iteration begins, at π' = π, it is the best g."""
    return recentre(state, config) if config.dice.recenter else state


def recentre(state: DiscriminatorState, config: PPODiceConfig) -> DiscriminatorState:
    """Zeros in the last layer, and an optimiser at rest."""
    network = state.network.recentred()
    return DiscriminatorState(network, _optimizer(config).init(network))


def make_dice_batch(
    rollout: Rollout, policy: Policy, old: Distribution, key: Key, config: PPODiceConfig
) -> DiceBatch:
    """The rows of an observed rollout of π = `policy`; initial states are drawn anew for every row."""
    steps = transitions(rollout, config.gamma, config.dice.chain)
    old_next = act_in_rows(policy, steps.next_obs) if config.dice.known_ratio else None
    if config.dice.initial_states in ("chain", "all"):
        return DiceBatch(_from_all_states(steps, config), old, old_next, None)
    first = jnp.zeros_like(rollout.ended).at[0].set(True)
    begins = first if config.dice.initial_states == "rollout" else (rollout.elapsed == 0) | first
    drawn = jax.random.categorical(key, jnp.log(begins.reshape(-1)), shape=steps.weight.shape)
    return DiceBatch(steps, old, old_next, steps.obs[drawn])


def take(batch: DiceBatch, rows: Int[Array, " M"], block_length: int = 1) -> DiceBatch:
    """A minibatch, of blocks of consecutive steps."""
    old, old_next, initial_obs = jax.tree.map(
        lambda leaf: leaf[rows], (batch.old, batch.old_next, batch.initial_obs)
    )
    if batch.steps.absorbs:  # there a successor need not be the next state
        block_length = 1
    return DiceBatch(take_rows(batch.steps, rows), old, old_next, initial_obs, block_length)


def draw_noise(policy: Policy, key: Key, shape: tuple[int, ...], config: PPODiceConfig) -> Noise:
    """Noise for batches of `shape` [..., B] rows, ahead of time and in one call: [..., D, B, M, …]."""
    dice = config.dice
    draws = dice.discriminator_steps + 1 if dice.resample_actions else 1
    samples = noises_needed(policy.counts, dice.policy_gradient, dice.action_samples)

    def draw(key: Key) -> Float[Array, "..."]:
        if policy.counts or dice.policy_gradient != "auto":
            return policy.noise(key, (*shape[:-1], draws, shape[-1], samples))
        # Noises come in pairs ±: to first order in the action a pair averages g without any error.
        half = policy.noise(key, (*shape[:-1], draws, shape[-1], (samples + 1) // 2))
        return jnp.concatenate([half, -half], axis=-2)[..., :samples, :]

    here_key, there_key, initial_key = jax.random.split(key, 3)
    coupled = dice.state_actions == "taken" and dice.form == "difference" and not policy.counts
    return Noise(
        here=None if coupled and dice.policy_gradient == "auto" else draw(here_key),
        there=draw(there_key),
        initial=draw(initial_key) if dice.initial_states in ("episode", "rollout") else None,
    )


def all_states(batch: DiceBatch) -> Shaped[Array, "B_all V"]:
    """States, successors that are not among them, and initial states, for one pass through a network."""
    last = batch.steps.next_obs[batch.block_length - 1 :: batch.block_length]
    parts = (batch.steps.obs, last, batch.initial_obs)
    return jnp.concatenate([part for part in parts if part is not None])


def in_states(rows: Any, batch: DiceBatch) -> InStates:
    """What a network made of the rows of `all_states`, in every state, successor and initial state."""
    length, count = batch.block_length, len(batch.steps.weight)

    def successors(leaf: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        if length == 1:
            return leaf[count : 2 * count]
        here, last = leaf[:count], leaf[count : count + count // length]
        blocks = here.reshape(-1, length, *leaf.shape[1:])
        return jnp.concatenate([blocks[:, 1:], last[:, None]], axis=1).reshape(here.shape)

    here = jax.tree.map(lambda leaf: leaf[:count], rows)
    initial = jax.tree.map(lambda leaf: leaf[-count:], rows) if batch.initial_obs is not None else None
    return InStates(here, jax.tree.map(successors, rows), initial)


def act_everywhere(head: Policy, features: Features, batch: DiceBatch) -> InStates:
    """π' in all states of the batch."""
    return in_states(jax.vmap(head)(features), batch)


def fit(
    state: DiscriminatorState,
    head: Policy,
    features: Features,
    batch: DiceBatch,
    noise: Noise,
    config: PPODiceConfig,
) -> tuple[DiscriminatorState, Reading, Metrics]:
    """K steps of Adam up the objective in g, with π' as it stands; and D̂ as a function of π' at the new g."""
    features = jax.lax.stop_gradient(features)
    acting = act_everywhere(head, features, batch)
    n_steps = config.dice.discriminator_steps
    frozen = None if config.dice.resample_actions else _choose(batch, acting, noise.draw(0), config)

    def step(state: DiscriminatorState, own: Noise | None) -> tuple[DiscriminatorState, Float[Array, ""]]:
        choices = frozen if own is None else _choose(batch, acting, own, config)
        gradient = jax.grad(_loss)(state.network, batch, features, choices, config)
        updates, optimizer = _optimizer(config).update(gradient, state.optimizer, state.network)
        network = optax.apply_updates(state.network, updates)
        return DiscriminatorState(network, optimizer), optax.tree.norm(gradient)

    draws = jax.tree.map(lambda part: part[:n_steps], noise) if frozen is None else None
    state, norms = jax.lax.scan(step, state, draws, length=n_steps)
    metrics = {"dice/discriminator_grad_norm": jnp.mean(norms)} if n_steps else {}
    return state, reading(state, batch, noise.draw(n_steps), config), metrics


def reading(state: DiscriminatorState, batch: DiceBatch, noise: Noise, config: PPODiceConfig) -> Reading:
    """D̂ at the g of this state."""

    def read_policy(head: Policy, features: Features) -> tuple[Float[Array, ""], Distribution]:
        acting = act_everywhere(head, features, batch)
        return _read(state.network, features, batch, acting, noise, config)[0], acting.here

    return read_policy


def read(
    network: Any,
    head: Policy,
    features: Features,
    batch: DiceBatch,
    noise: Noise,
    config: PPODiceConfig,
) -> tuple[Float[Array, ""], Rows]:
    """D̂ of this g and this policy, and the rows behind it."""
    return _read(network, features, batch, act_everywhere(head, features, batch), noise, config)


def certify(
    divergence: Float[Array, ""], new: Distribution, old: Distribution, config: PPODiceConfig
) -> Metrics:
    """Whether a reading can be true, and if not why: above what is possible, or worse than a constant g.

    KL(μ'‖μ) ≤ max_s KL(π'‖π)/(1−γ) over the states seen, and no divergence of n rows exceeds that of one row
    from all of them. The zero of a constant g can always be had, so a reading below it is the fault of g.
    """
    safe_upper = safe_upper_bound(new, old, config)
    n_rows = jax.tree.leaves(old)[0].shape[0]
    largest = largest_certifiable(make_divergence(config), n_rows)
    above = ~(divergence <= jnp.minimum(largest, safe_upper) + ROUNDING)  # true for NaN as well
    below = divergence < -ROUNDING
    flags = {"dice/valid": ~(above | below), "dice/above_bound": above, "dice/below_zero": below}
    return {tag: flag.astype(jnp.float32) for tag, flag in flags.items()}


LARGEST_LOG_RATIO = 20.0
"""Where the known part of g saturates, so that no policy makes it overflow."""

ROUNDING = 1e-6
"""Slack of the checks: at π' = π reading and bounds are all zero, up to rounding."""


def safe_upper_bound(new: Distribution, old: Distribution, config: PPODiceConfig) -> Float[Array, ""]:
    """max_s KL(π'‖π)/(1−γ), which KL(μ'‖μ) cannot exceed; other divergences have no such bound."""
    if config.dice.divergence not in ("kl", "kl_paper"):
        return jnp.asarray(jnp.inf, jnp.float32)
    return jnp.max(jax.vmap(kl_divergence)(new, old)) / (1 - config.gamma)


def whole_batch_certificate(
    rows: Rows, divergence: Float[Array, ""], new: Distribution, old: Distribution, config: PPODiceConfig
) -> Metrics:
    """D̂ on fresh noise, and between which bounds KL(μ'‖μ) lies, as far as g knows d'.

    E_{d'}KL(π'‖π) ≤ KL(μ'‖μ) ≤ E_{d'}KL(π'‖π)/(1−γ), with the means over d' by the density ratios of g.
    """
    ratio = density_ratio(make_divergence(config), rows.residual, rows.weight, shift=shifted(config))
    share = rows.weight * jnp.maximum(ratio, 0)
    kl = jax.vmap(kl_divergence)(new, old)
    kl = jnp.concatenate([kl, jnp.zeros(len(share) - len(kl), kl.dtype)])  # absorbing rows
    mean_ratio = jnp.sum(share)
    share = share / jnp.maximum(mean_ratio, ROUNDING)
    lower = jnp.sum(share * kl)
    with jax.ensure_compile_time_eval():  # infinite where φ(0) is; then there is nothing to tell
        largest = float(largest_certifiable(make_divergence(config), len(share)))
    metrics = {"dice/largest_certifiable": jnp.float32(largest)} if math.isfinite(largest) else {}
    return metrics | {
        "dice/fresh_divergence": divergence,
        "dice/lower_bound": lower,
        "dice/lower_bound_se": jnp.sqrt(jnp.sum(share**2 * (kl - lower) ** 2)),
        "dice/upper_bound": lower / (1 - config.gamma),
        "dice/safe_upper_bound": jnp.max(kl) / (1 - config.gamma),
        "dice/mean_ratio": mean_ratio,
    }


def make_divergence(config: PPODiceConfig) -> Divergence:
    """The divergence that is asked for."""
    dice = config.dice
    return get_divergence(
        dice.divergence, **({"order": dice.alpha_order} if dice.divergence == "alpha" else {})
    )


def shifted(config: PPODiceConfig) -> bool:
    """Whether the best constant is added to g, which the paper's un-normalised KL does without."""
    return config.dice.divergence != "kl_paper"


def _read(
    network: Any,
    features: Features,
    batch: DiceBatch,
    acting: InStates,
    noise: Noise,
    config: PPODiceConfig,
) -> tuple[Float[Array, ""], Rows]:
    features = jax.lax.stop_gradient(features)
    return _evaluate(network, batch, features, _choose(batch, acting, noise, config), config)


class _Chosen(NamedTuple):
    """The actions over which g is averaged, in initial states of their own too where there are such."""

    choices: Choices
    known: tuple[Float[Array, "B J"], Float[Array, "B I"]] | None
    """The part of g that is known, for these actions."""
    initial: Support | None


def _choose(batch: DiceBatch, acting: InStates, noise: Noise, config: PPODiceConfig) -> _Chosen:
    dice, taken = config.dice, batch.steps.action
    old = batch.old if dice.form == "difference" else None
    pair = (noise.here, noise.there)
    choices = choose_actions(taken, acting.here, old, acting.there, pair, dice.policy_gradient)
    known = _known_part(choices, batch, acting, config) if dice.known_ratio else None
    if acting.initial is None:
        return _Chosen(choices, known, None)
    assert noise.initial is not None
    in_initial: Callable[..., Support] = jax.vmap(partial(support, gradient=dice.policy_gradient))
    return _Chosen(choices, known, in_initial(acting.initial, noise.initial))


def _known_part(
    choices: Choices, batch: DiceBatch, acting: InStates, config: PPODiceConfig
) -> tuple[Float[Array, "B J"], Float[Array, "B I"]]:
    """φ'(π'/π) of every action: what the best residual φ'(μ'/μ) would be if no state were visited otherwise.

    It is part of g, so the policy is differentiated through the actions and not through these densities.
    """
    slope = make_divergence(config).slope
    level = _level(config) - slope(jnp.ones(()))

    def known(new: Distribution, old: Distribution, actions: Shaped[Array, "J A"]) -> Float[Array, " J"]:
        log_ratio = jax.vmap(lambda action: new.log_prob(action) - old.log_prob(action))(actions)
        return level + slope(jnp.exp(jnp.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)))

    assert batch.old_next is not None
    new, new_next = jax.lax.stop_gradient((acting.here, acting.there))
    here = jax.vmap(known)(new, batch.old, choices.action)
    return here, jax.vmap(known)(new_next, batch.old_next, choices.next_action)


def _level(config: PPODiceConfig) -> Float[Array, ""]:
    """The g that gives x = φ'(1) everywhere: 0, but 1/(1−γ) for the paper's un-normalised KL."""
    return make_divergence(config).slope(jnp.ones(())) / (1 - config.gamma)


def _evaluate(
    network: Any, batch: DiceBatch, features: Features, chosen: _Chosen, config: PPODiceConfig
) -> tuple[Float[Array, ""], Rows]:
    """`features` are those that π' reads; they are g's too where it has no encoder of its own."""
    divergence, shift = make_divergence(config), shifted(config)
    seen, g = _reading_of_g(network, batch, features)
    steps = replace(batch.steps, obs=seen.here, next_obs=seen.there)
    absorbing = network.absorbing + (_level(config) if config.dice.known_ratio else 0)
    rows = evaluate_rows(g, absorbing, steps, chosen.choices, config.gamma, known=chosen.known)
    if config.dice.form == "difference":
        return difference_form(divergence, *rows[:3], shift=shift), rows
    if chosen.initial is not None:
        values = jax.vmap(jax.vmap(g, (None, 0)))(seen.initial, chosen.initial.action)
        mean = jnp.mean(jnp.sum(chosen.initial.weight * values, axis=1))
        rows = rows._replace(initial=(1 - config.gamma) * mean)
    return paper_form(divergence, rows.initial, rows.residual, rows.weight, shift=shift), rows


def _reading_of_g(network: Any, batch: DiceBatch, features: Features) -> tuple[InStates, Any]:
    """What g reads in all states, and g as a function of that and an action."""
    if not isinstance(network, PixelDiscriminator):
        return InStates(batch.steps.obs, batch.steps.next_obs, batch.initial_obs), network
    own = features if network.encoder is None else network.encoder(all_states(batch))
    return in_states(own, batch), network.head


def _loss(
    network: Any, batch: DiceBatch, features: Features, chosen: _Chosen, config: PPODiceConfig
) -> Float[Array, ""]:
    """−D̂, and what keeps g smooth."""
    dice = config.dice
    loss = -_evaluate(network, batch, features, chosen, config)[0]
    if dice.orthogonal_penalty is not None:
        loss += dice.orthogonal_penalty * _distance_from_orthogonal(network)
    if dice.gradient_penalty is not None:
        loss += dice.gradient_penalty * _mean_squared_slope(network, batch, features)
    return loss


def _distance_from_orthogonal(network: Any) -> Float[Array, ""]:
    """Σ ‖WWᵀ − I‖² over the hidden layers, by the smaller of the two products."""

    def distance(weight: Float[Array, "J I"]) -> Float[Array, ""]:
        wide = weight if weight.shape[0] <= weight.shape[1] else weight.T
        return jnp.sum((wide @ wide.T - jnp.eye(len(wide), dtype=wide.dtype)) ** 2)

    return sum((distance(weight) for weight in network.hidden_weights), jnp.zeros(()))


def _mean_squared_slope(network: Any, batch: DiceBatch, features: Features) -> Float[Array, ""]:
    """E‖∇g‖² at the steps of the batch, with respect to what g reads and to a continuous action."""
    seen, g = _reading_of_g(network, batch, features)
    action = batch.steps.action
    continuous = jnp.issubdtype(action.dtype, jnp.floating)
    slopes = jax.vmap(jax.grad(g, argnums=(0, 1) if continuous else (0,)))(seen.here, action)
    return sum((jnp.mean(jnp.sum(slope**2, axis=-1)) for slope in slopes), jnp.zeros(()))


def _from_all_states(steps: Transitions, config: PPODiceConfig) -> Transitions:
    """All visited states as initial ones, where that is asked for and is not what the chain does."""
    if config.dice.initial_states == "chain":
        return steps
    even = jnp.full_like(steps.inflow, (1 - config.gamma) / len(steps.inflow))
    return replace(steps, inflow=even, outflow=jnp.zeros_like(even))


def _optimizer(config: PPODiceConfig) -> optax.GradientTransformation:
    dice = config.dice
    rate = config.learning_rate * dice.learning_rate_factor
    clip = optax.identity() if dice.max_grad_norm is None else optax.clip_by_global_norm(dice.max_grad_norm)
    return optax.chain(
        clip,
        optax.scale_by_adam(eps=config.adam_eps),
        optax.add_decayed_weights(dice.weight_decay),
        optax.scale(-rate),
    )
