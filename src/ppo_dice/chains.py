"""What follows the end of an episode: three consistent choices, as weights and successors of steps.

A visitation distribution is that of a chain that goes on for ever, so something must follow an episode's end.
Whatever does must be the same in the weights of the rows, in their successors and in the initial states: only
then is D_φ = 0 at π' = π for every g, as it has to be.

| chain           | weight of step k of an episode | after a termination at step H − 1                     |
|-----------------|--------------------------------|-------------------------------------------------------|
| `restart`       | 1                              | the first state of the next episode                   |
| `absorbing`     | (1−γ)γᵏ                        | an absorbing state z, in a row of weight γᴴ           |
| `absorbing-all` | 1 − γ^{k+1}                    | the same, in a row of weight γ(1−γᴴ)/(1−γ)            |

The initial states are all visited ones, except for `absorbing`, which has those in which episodes begin. g of
the absorbing state is one number g_z; its residual is (1−γ)g_z. A truncation is no termination: in `restart`
it is a restart like any other, in the absorbing chains the step has its true successor and no absorbing row.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from ppo_dice.distributions import Distribution
from ppo_dice.types import Rollout, Scalar

Chain = Literal["restart", "absorbing", "absorbing-all"]
CHAINS: tuple[Chain, ...] = get_args(Chain)

PolicyFunction = Callable[[Shaped[Array, "*O"]], Distribution]
Discriminator = Callable[[Shaped[Array, "*O"], Shaped[Array, " A"]], Float[Array, "*F"]]
"""g(s, a) of one state and one action: a number, or the features of a linear g."""

AverageNext = Callable[[Array, Array, Array], Array]


class Transitions(eqx.Module):
    """The steps of a rollout in rows (B = T · N), as one of the chains sees them."""

    obs: Shaped[Array, "B *O"]
    action: Shaped[Array, "B A"]
    next_obs: Shaped[Array, "B *O"]
    weight: Float[Array, " B"]
    """Share of each row; together with the absorbing weights they sum to 1."""
    absorbed: Bool[Array, " B"]
    """Whether the successor is the absorbing state."""
    absorbing_weight: Float[Array, " B"]
    """Share of the absorbing row that follows this one."""
    inflow: Float[Array, " B"]
    """What V'_g(s) counts in (1−γ)E_ρ[V'_g], the initial term of the paper's form."""
    outflow: Float[Array, " B"]
    """What is to be taken off it for V'_g(s'), because a truncation has cut off what would have followed."""


class Rows(NamedTuple):
    """What a divergence needs of g in every row, absorbing rows included; see `divergence`."""

    change: Float[Array, "R *F"]
    residual: Float[Array, "R *F"]
    weight: Float[Array, " R"]
    initial: Float[Array, "*F"]
    """(1−γ)E_ρ[V'_g]."""


def transitions(rollout: Rollout, gamma: Scalar, chain: Chain = "restart") -> Transitions:
    """The rows of one seed's rollout ([T, N]) with the weights of the chain."""
    rollout = jax.tree.map(jnp.asarray, rollout)
    one = jnp.ones_like(rollout.reward)
    still = gamma ** rollout.elapsed.astype(one.dtype)  # γᵏ
    if chain == "restart":
        next_obs, absorbed = rollout.obs[1:], jnp.zeros_like(rollout.terminated)
        weight, absorbing_weight, inflow, outflow = one, 0 * one, (1 - gamma) * one, 0 * one
    else:
        ended = rollout.ended.reshape(rollout.ended.shape + (1,) * (rollout.obs.ndim - rollout.ended.ndim))
        next_obs, absorbed = jnp.where(ended, rollout.final_obs, rollout.obs[1:]), rollout.terminated
        begins = rollout.elapsed.at[0].set(0) == 0  # the middle of an episode begins where the rollout does
        cut_off = rollout.truncated.at[-1].set(True) & ~rollout.terminated
        if chain == "absorbing":
            weight, after_end = (1 - gamma) * still, gamma * still  # at the last step γ·γᵏ is γᴴ
            inflow = jnp.where(begins, weight, 0)
        else:
            weight, after_end = 1 - gamma * still, gamma * (1 - gamma * still) / (1 - gamma)
            carried = jnp.where(begins, weight - (1 - gamma), 0)  # 0 where an episode begins
            inflow = (1 - gamma) + carried
        absorbing_weight = jnp.where(absorbed, after_end, 0)
        outflow = jnp.where(cut_off, gamma * weight, 0)
    total = jnp.sum(weight) + jnp.sum(absorbing_weight)
    shares = (part / total for part in (weight, absorbing_weight, inflow, outflow))
    weight, absorbing_weight, inflow, outflow = shares
    rows = (
        rollout.obs[:-1],
        rollout.action,
        next_obs,
        weight,
        absorbed,
        absorbing_weight,
        inflow,
        outflow,
    )
    return Transitions(*(x.reshape(-1, *x.shape[2:]) for x in rows))


def evaluate_rows(
    g: Discriminator,
    g_absorbing: Float[Array, "*F"],
    steps: Transitions,
    new: PolicyFunction,
    old: PolicyFunction,
    noise: Any,
    gamma: Scalar,
    *,
    sampled: bool = False,
    average_next: AverageNext | None = None,
) -> Rows:
    """The change and the residual of g in every row, differentiable in g and in the new policy.

    `noise` is a pair of arrays [B, M, …], for the states and for their successors: what decides the M actions
    over which a continuous policy is averaged, the same for both policies. Categorical policies are summed
    over all actions, unless they are to be `sampled` as in the paper. `average_next(chosen, next_value,
    weight)` may put something in the place of the value of the one sampled successor, such as
    `discriminator.conditional_mean`.
    """
    mean = partial(_mean, g, sampled=sampled)
    here, there = noise
    chosen = jax.vmap(g)(steps.obs, steps.action)
    value = jax.vmap(lambda s, n: mean(s, new(s), n))(steps.obs, here)
    change = value - jax.vmap(lambda s, n: mean(s, old(s), n))(steps.obs, here)
    absorbed = steps.absorbed.reshape(steps.absorbed.shape + (1,) * (chosen.ndim - 1))
    next_value = jax.vmap(lambda s, n: mean(s, new(s), n))(steps.next_obs, there)
    next_value = jnp.where(absorbed, jnp.broadcast_to(g_absorbing, chosen.shape), next_value)
    initial = steps.inflow @ value - steps.outflow @ next_value
    if average_next is not None:
        next_value = average_next(chosen, next_value, steps.weight)
    residual = chosen - gamma * next_value
    absorbing = jnp.broadcast_to((1 - gamma) * g_absorbing, residual.shape)
    return Rows(
        jnp.concatenate([change, jnp.zeros_like(change)]),
        jnp.concatenate([residual, absorbing]),
        jnp.concatenate([steps.weight, steps.absorbing_weight]),
        initial,
    )


def _mean(
    g: Discriminator, obs: Shaped[Array, "*O"], policy: Distribution, noise: Any, *, sampled: bool
) -> Float[Array, "*F"]:
    """E_{a~π(·|s)} g(s, a)."""
    if sampled:
        actions = jax.vmap(policy.sample)(noise)
        return jnp.mean(jax.vmap(lambda action: g(obs, action))(actions), axis=0)
    actions, probabilities = policy.support(noise)
    return jnp.tensordot(probabilities, jax.vmap(lambda action: g(obs, action))(actions), axes=1)
