"""Proximal policy optimisation, for one seed.

`init` makes a state, `update` maps a state and a rollout to the next state and metrics; both are pure.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from ppo_dice import objectives
from ppo_dice.advantages import discounted_returns_so_far, explained_variance, gae, standardize
from ppo_dice.config import PPOConfig
from ppo_dice.diagnostics import policy_change
from ppo_dice.distributions import Distribution
from ppo_dice.minibatch import epoch_minibatches
from ppo_dice.networks import (
    MLP,
    CategoricalPolicy,
    GaussianPolicy,
    NoEncoder,
    PixelPolicy,
    Policy,
    StateValue,
    act_in_rows,
    encoder_and_head,
    image_views,
    init_encoder,
    init_mlp,
    n_features,
)
from ppo_dice.normalization import (
    Moments,
    Normalizer,
    empty_moments,
    init_normalizer,
    scale,
    update_moments,
    update_normalizer,
)
from ppo_dice.types import (
    ActionKind,
    Actor,
    Batch,
    Key,
    Metrics,
    ObservationKind,
    Rollout,
    Scalar,
    register_config,
)

register_config(PPOConfig)


class Sight(NamedTuple):
    """What a policy's encoder makes of some observations, and how gradients find back through it."""

    features: Shaped[Array, "B F"]
    pull_back: Callable[[Float[Array, "B F"]], Any] | None
    """None where there is nothing to train: the features are the observations."""

    @property
    def differentiated(self) -> tuple[int, ...]:
        """Which of the arguments (networks, features) gradients are needed of."""
        return (0,) if self.pull_back is None else (0, 1)


Regularizer = Callable[[Policy, Sight], tuple[tuple[Any, ...], Metrics]]
"""What is added to the loss, as a function of the policy's head and of what it sees: its gradients with
respect to `Sight.differentiated`, and metrics."""


class PPOModel(eqx.Module):
    """What is worth keeping of a trained agent: networks and the statistics they were trained with."""

    policy: Policy
    value: StateValue
    normalizer: Normalizer
    return_moments: Moments

    @property
    def actor(self) -> Actor:
        """All that is needed to act."""
        return Actor(self.policy, self.normalizer)


class PPOState(eqx.Module):
    """Everything that evolves while PPO trains."""

    model: PPOModel
    optimizer: optax.OptState
    return_so_far: Float[Array, " N"]
    kl_coef: Float[Array, ""]


def init(observation: ObservationKind, actions: ActionKind, key: Key, config: PPOConfig) -> PPOState:
    """Fresh networks, an optimiser at rest and normalisers that have seen nothing."""
    policy_key, value_key = jax.random.split(key)
    policy = init_policy(observation, actions, policy_key, config)
    value = StateValue(_mlp(n_features(observation, config), 1, value_key, config, head_gain=1.0))
    clip = config.observation_clip if config.normalize_observations else jnp.inf
    normalizer = init_normalizer(observation.size, clip, image_views(observation, config))
    return PPOState(
        model=PPOModel(policy, value, normalizer, empty_moments()),
        optimizer=_optimizer(config).init((policy, value)),
        return_so_far=jnp.zeros(config.n_envs, jnp.float32),
        kl_coef=jnp.asarray(config.kl_coef, jnp.float32),
    )


def init_policy(observation: ObservationKind, actions: ActionKind, key: Key, config: PPOConfig) -> Policy:
    """A Gaussian policy for continuous actions, a categorical one for discrete; of the features of images."""
    n_inputs = n_features(observation, config)
    body = partial(_mlp, n_inputs, key=key, config=config, head_gain=config.policy_head_gain)
    head: Policy
    if actions.counts:
        head = CategoricalPolicy(body(sum(actions.counts)), actions.counts)
    else:
        head = GaussianPolicy(body(actions.size), jnp.full(actions.size, config.log_std_init, jnp.float32))
    if not observation.images:
        return head
    return PixelPolicy(init_encoder(observation, config, jax.random.fold_in(key, 1)), head)


def update(state: PPOState, rollout: Rollout, key: Key, config: PPOConfig) -> tuple[PPOState, Metrics]:
    """One iteration: estimate advantages, then move policy and value on shuffled minibatches."""
    state, reward = scale_rewards(state, rollout, config)
    batch, behaviour, value = make_batch(state.model, observe(state.model, rollout), reward, config)

    def step(carry: tuple[PPOState, Bool[Array, ""]], rows: Array) -> tuple[Any, Metrics]:
        state, running = carry
        minibatch, old = jax.tree.map(lambda leaf: leaf[rows], (batch, behaviour))
        proposal, metrics = update_policy(state, minibatch, old, config)
        if config.target_kl is not None:
            running &= metrics["train/approx_kl"] <= 1.5 * config.target_kl
        state = jax.tree.map(lambda new, kept: jnp.where(running, new, kept), proposal, state)
        return (state, running), metrics | {"train/updates": running.astype(jnp.float32)}

    rows = shuffled_rows(key, config).reshape(-1, config.minibatch_size)
    (state, _), history = jax.lax.scan(step, (state, jnp.asarray(True)), rows)

    after = act_in_rows(state.model.policy, batch.obs)
    change = policy_change(behaviour, after, batch.action)
    metrics = mean_over_updates(history) | change
    metrics["train/explained_variance"] = explained_variance(value, batch.value_target)
    return finish_iteration(state, rollout, change["policy/kl_old_new"], config), metrics


def scale_rewards(
    state: PPOState, rollout: Rollout, config: PPOConfig
) -> tuple[PPOState, Float[Array, "T N"]]:
    """Rewards over the running standard deviation of the discounted return, this rollout's included."""
    if not config.normalize_rewards:
        return state, rollout.reward
    along_steps = jax.vmap(discounted_returns_so_far, in_axes=(1, 1, 0, None), out_axes=(1, 0))
    returns, return_so_far = along_steps(rollout.reward, rollout.ended, state.return_so_far, config.gamma)
    moments = update_moments(state.model.return_moments, returns.reshape(-1))
    state = replace(state, model=replace(state.model, return_moments=moments), return_so_far=return_so_far)
    return state, scale(moments, rollout.reward, config.reward_clip)


def observe(model: PPOModel, rollout: Rollout) -> Rollout:
    """The rollout with observations as the networks see them."""
    see = jax.vmap(jax.vmap(model.normalizer))
    return replace(rollout, obs=see(rollout.obs), final_obs=see(rollout.final_obs))


def make_batch(
    model: PPOModel, rollout: Rollout, reward: Float[Array, "T N"], config: PPOConfig
) -> tuple[Batch, Distribution, Float[Array, " B"]]:
    """All that the update needs of an observed rollout, in rows; π(·|s) in every row; V(s) in every row."""
    encoder, policy = encoder_and_head(model.policy)
    n_rows, size = rollout.ended.size, rollout.obs.shape[-1]
    features = encoder(rollout.obs.reshape(-1, size)).reshape(*rollout.obs.shape[:2], -1)
    final = encoder.where(rollout.ended.reshape(-1), rollout.final_obs.reshape(-1, size))
    judge = jax.vmap(jax.vmap(model.value))
    values = judge(features)
    value = values[:-1]
    final_value = judge(final.reshape(*rollout.ended.shape, -1))
    next_value = jnp.where(rollout.ended, final_value, values[1:])

    along_steps = jax.vmap(gae, in_axes=(1, 1, 1, 1, 1, None, None), out_axes=1)
    terminated = terminations(rollout, config)
    estimate = partial(along_steps, reward, value, next_value, terminated, rollout.ended, config.gamma)
    raw_advantage = estimate(config.gae_lambda)
    value_target = value + (raw_advantage if config.value_target == "gae" else estimate(1.0))
    advantage = standardize(raw_advantage) if config.standardize_advantages else raw_advantage

    obs, action, features = (x.reshape(n_rows, -1) for x in (rollout.obs[:-1], rollout.action, features[:-1]))
    behaviour, log_prob = _judge_in_minibatches(policy, features, action, config.n_minibatches)
    advantage, raw_advantage, value_target, value = (
        x.reshape(-1) for x in (advantage, raw_advantage, value_target, value)
    )
    return Batch(obs, action, log_prob, advantage, raw_advantage, value_target), behaviour, value


def terminations(rollout: Rollout, config: PPOConfig) -> Bool[Array, "T N"]:
    """Where nothing follows: at terminations, and at time limits if they are to count as such."""
    return rollout.ended if config.time_limits == "terminate" else rollout.terminated


def shuffled_rows(key: Key, config: PPOConfig) -> Int[Array, "E M B"]:
    """The rows of every minibatch of every epoch; the steps of a block follow each other."""
    length, n_envs = config.block_length, config.n_envs
    n_blocks = config.batch_size // length
    blocks = jax.vmap(lambda key: epoch_minibatches(key, n_blocks, config.n_minibatches))(
        jax.random.split(key, config.n_epochs)
    )
    first = blocks // n_envs * (length * n_envs) + blocks % n_envs
    rows = first[..., None] + n_envs * jnp.arange(length)[None, None, None]
    return rows.reshape(*blocks.shape[:2], -1)


def look(policy: Policy, obs: Shaped[Array, "B V"]) -> Sight:
    """One pass through the policy's encoder, for everything that reads its features."""
    encoder, _ = encoder_and_head(policy)
    if isinstance(encoder, NoEncoder):
        return Sight(obs, None)
    features, pull_back = jax.vjp(lambda encoder: encoder(obs), encoder)
    return Sight(features, lambda slope: pull_back(slope)[0])


def _judge_in_minibatches(
    policy: Policy, features: Float[Array, "B F"], action: Shaped[Array, "B A"], n_minibatches: int
) -> tuple[Distribution, Float[Array, " B"]]:
    """π(·|s) and log π(a|s) of every row, by products of the shape that the gradient steps will use.

    A product of another shape may round otherwise; so the ratio of the first minibatch is 1 to the last bit.
    """

    def judge(rows: tuple[Array, Array]) -> tuple[Distribution, Float[Array, " M"]]:
        distribution = jax.vmap(policy)(rows[0])
        return distribution, jax.vmap(lambda one, a: one.log_prob(a))(distribution, rows[1])

    split = jax.tree.map(lambda x: x.reshape(n_minibatches, -1, *x.shape[1:]), (features, action))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.lax.map(judge, split))


def update_policy(
    state: PPOState,
    minibatch: Batch,
    behaviour: Distribution,
    config: PPOConfig,
    regularizer: Regularizer | None = None,
    sight: Sight | None = None,
) -> tuple[PPOState, Metrics]:
    """One gradient step of policy and value on one minibatch.

    `sight` is what the policy sees in the rows of the minibatch, and behind them in others that a regulariser
    needs; without it the policy looks at the minibatch.
    """
    model, n_rows = state.model, len(minibatch.action)
    sight = look(model.policy, minibatch.obs) if sight is None else sight
    head = encoder_and_head(model.policy)[1]
    gradient_of_loss = jax.grad(loss, argnums=sight.differentiated, has_aux=True)
    seen = minibatch.obs if sight.pull_back is None else sight.features[:n_rows]
    ((slope, value_slope), *by_features), metrics = gradient_of_loss(
        (head, model.value), seen, minibatch, behaviour, state.kl_coef, config
    )
    by_features = [jnp.zeros_like(sight.features).at[:n_rows].set(part) for part in by_features]
    if regularizer is not None:
        # Not a term of the loss: summed over rows by themselves, PPO's gradients keep their last bit.
        more, more_metrics = regularizer(head, sight)
        slope, *by_features = jax.tree.map(jnp.add, (slope, *by_features), more)
        metrics |= more_metrics
    if sight.pull_back is not None:
        slope = PixelPolicy(sight.pull_back(by_features[0]), slope)
    gradient = (slope, value_slope)
    updates, optimizer = _optimizer(config).update(gradient, state.optimizer)
    policy, value = optax.apply_updates((model.policy, model.value), updates)
    metrics |= {
        "train/policy_grad_norm": optax.tree.norm(gradient[0]),
        "train/value_grad_norm": optax.tree.norm(gradient[1]),
    }
    return replace(state, model=replace(model, policy=policy, value=value), optimizer=optimizer), metrics


def loss(
    networks: tuple[Policy, StateValue],
    features: Shaped[Array, "B F"],
    minibatch: Batch,
    behaviour: Distribution,
    kl_coef: Float[Array, ""],
    config: PPOConfig,
) -> tuple[Float[Array, ""], Metrics]:
    """vf_coef·E(V − target)² − L_clip − ent_coef·E H(π') [+ λ·E KL(π‖π')], on features of observations."""
    head, value = networks
    # The barrier keeps sums over rows from being compiled otherwise when there is a regulariser.
    new = jax.lax.optimization_barrier(jax.vmap(head)(features))
    log_prob = jax.vmap(lambda distribution, a: distribution.log_prob(a))(new, minibatch.action)
    log_ratio = log_prob - minibatch.log_prob
    if config.surrogate == "clipped":
        gain = objectives.clipped_surrogate(log_ratio, minibatch.advantage, config.clip_range)
    else:
        gain = objectives.surrogate(log_ratio, minibatch.advantage)
    value_loss = objectives.value_loss(jax.vmap(value)(features), minibatch.value_target)
    entropy = jnp.mean(jax.vmap(lambda distribution: distribution.entropy())(new))
    total = config.vf_coef * value_loss - gain - config.ent_coef * entropy
    metrics = {
        "train/policy_gradient_loss": -gain,
        "train/value_loss": value_loss,
        "train/entropy_loss": -entropy,
        "train/approx_kl": objectives.approximate_kl(log_ratio),
        "train/clip_fraction": objectives.clip_fraction(log_ratio, config.clip_range),
    }
    if config.kl_penalty != "none":
        kl = jnp.mean(jax.vmap(lambda old, new: old.kl_divergence(new))(behaviour, new))
        total += kl_coef * kl
        metrics |= {"train/kl_penalty": kl_coef * kl, "train/kl_coef": kl_coef}
    return total, metrics | {"train/loss": total}


def mean_over_updates(history: Metrics) -> Metrics:
    """Means over the gradient steps that were taken, not over those that `target_kl` called off.

    The minibatch that crossed the threshold is counted where nothing was taken, so that its KL shows.
    """
    taken = history["train/updates"]
    count = jnp.sum(taken)
    weight = jnp.where(count > 0, taken, jnp.zeros_like(taken).at[0].set(1.0))
    means = {tag: jnp.sum(weight * values) / jnp.sum(weight) for tag, values in history.items()}
    return means | {"train/updates": count}


def finish_iteration(
    state: PPOState, rollout: Rollout, kl_old_new: Float[Array, ""], config: PPOConfig
) -> PPOState:
    """Let the observation statistics take in the rollout, and move the adaptive λ (doubled or halved)."""
    if config.normalize_observations:
        obs = rollout.obs[:-1].reshape(-1, *rollout.obs.shape[2:])
        normalizer = update_normalizer(state.model.normalizer, obs)
        state = replace(state, model=replace(state.model, normalizer=normalizer))
    if config.kl_penalty == "adaptive":
        factor = jnp.where(kl_old_new > 1.5 * config.kl_target, 2.0, 1.0)
        factor = jnp.where(kl_old_new < config.kl_target / 1.5, 0.5, factor)
        state = replace(state, kl_coef=state.kl_coef * factor)
    return state


def _optimizer(config: PPOConfig) -> optax.GradientTransformation:
    clip = (
        optax.identity() if config.max_grad_norm is None else optax.clip_by_global_norm(config.max_grad_norm)
    )
    return optax.chain(clip, optax.scale_by_adam(eps=config.adam_eps), optax.scale(-config.learning_rate))


def _mlp(n_in: int, n_out: int, key: Key, config: PPOConfig, head_gain: Scalar) -> MLP:
    sizes = (n_in, *config.hidden_sizes, n_out)
    return init_mlp(sizes, key, activation=config.activation, head_gain=head_gain)
