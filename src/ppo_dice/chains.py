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
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from ppo_dice.distributions import Distribution, PolicyGradient, Support, support
from ppo_dice.types import Rollout, Scalar

Chain = Literal["restart", "absorbing", "absorbing-all"]
CHAINS: tuple[Chain, ...] = get_args(Chain)

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
    absorbs: bool = eqx.field(static=True)
    """Whether the chain has an absorbing state."""


class Choices(NamedTuple):
    """The actions over which g is averaged in every row, with their weights in each average.

    The last action of a state is the one that was taken.
    """

    action: Shaped[Array, "B J A"]
    new_weight: Float[Array, "B J"]
    old_weight: Float[Array, "B J"]
    next_action: Shaped[Array, "B I A"]
    next_weight: Float[Array, "B I"]


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
    arrays = {
        "obs": rollout.obs[:-1],
        "action": rollout.action,
        "next_obs": next_obs,
        "weight": weight,
        "absorbed": absorbed,
        "absorbing_weight": absorbing_weight,
        "inflow": inflow,
        "outflow": outflow,
    }
    rows = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    return Transitions(**rows, absorbs=chain != "restart")


def take_rows(steps: Transitions, rows: Int[Array, " M"]) -> Transitions:
    """A minibatch, its shares scaled up to sum to 1 again."""
    part: Transitions = jax.tree.map(lambda leaf: leaf[rows], steps)
    total = jnp.sum(part.weight) + jnp.sum(part.absorbing_weight)
    shares = ("weight", "absorbing_weight", "inflow", "outflow")
    return replace(part, **{name: getattr(part, name) / total for name in shares})


def choose_actions(
    taken: Shaped[Array, "B A"],
    new: Distribution,
    old: Distribution | None,
    new_next: Distribution,
    noise: tuple[Any, Any],
    gradient: PolicyGradient = "auto",
) -> Choices:
    """The actions over which g is averaged, differentiable in the new policy; all arguments are of B rows.

    `noise` is a pair of arrays [B, M, …], for the states and for their successors. Both policies share that
    of the states. It may be None: then it is the noise behind the action that was taken, for which π's own
    action is the one taken. Without an old policy the change is not known, and is counted as 0.
    """

    here, there = noise
    in_state = jax.vmap(partial(_choose_in_state, gradient=gradient))(taken, new, old, here)
    successors: Support = jax.vmap(partial(support, gradient=gradient))(new_next, there)
    return Choices(*in_state, *successors)


def evaluate_rows(
    g: Discriminator,
    g_absorbing: Float[Array, "*F"],
    steps: Transitions,
    choices: Choices,
    gamma: Scalar,
    *,
    known: tuple[Float[Array, "B J"], Float[Array, "B I"]] | None = None,
    average_next: AverageNext | None = None,
) -> Rows:
    """The change and the residual of g in every row, differentiable in g and in the new policy.

    `known` is added to g for the actions chosen, in states and in successors. `average_next(chosen,
    next_value, weight)` may put something in the place of the value of the one sampled successor, such as
    `linear_discriminator.conditional_mean`.
    """
    at: Callable[[Array, Array], Array] = jax.vmap(jax.vmap(g, (None, 0)))
    here, there = at(steps.obs, choices.action), at(steps.next_obs, choices.next_action)
    if known is not None:
        here, there = here + known[0], there + known[1]
    chosen, value = here[:, -1], jnp.einsum("bj,bj...->b...", choices.new_weight, here)
    change = value - jnp.einsum("bj,bj...->b...", choices.old_weight, here)
    next_value = jnp.einsum("bj,bj...->b...", choices.next_weight, there)
    if steps.absorbs:
        absorbed = steps.absorbed.reshape(steps.absorbed.shape + (1,) * (chosen.ndim - 1))
        next_value = jnp.where(absorbed, jnp.broadcast_to(g_absorbing, chosen.shape), next_value)
    initial = steps.inflow @ value - steps.outflow @ next_value
    if average_next is not None:
        next_value = average_next(chosen, next_value, steps.weight)
    residual = chosen - gamma * next_value
    if not steps.absorbs:
        return Rows(change, residual, steps.weight, initial)
    absorbing = jnp.broadcast_to((1 - gamma) * g_absorbing, residual.shape)
    return Rows(
        jnp.concatenate([change, jnp.zeros_like(change)]),
        jnp.concatenate([residual, absorbing]),
        jnp.concatenate([steps.weight, steps.absorbing_weight]),
        initial,
    )


def _choose_in_state(
    taken: Shaped[Array, " A"],
    new: Distribution,
    old: Any,
    noise: Any,
    gradient: PolicyGradient,
) -> tuple[Shaped[Array, "J A"], Float[Array, " J"], Float[Array, " J"]]:
    """Actions in one state, and their weights under π' and under π; the last is the one that was taken."""
    coupled = noise is None and not new.enumerable
    ours = support(new, old.noise_of(taken)[None] if coupled else noise, gradient)
    nothing, everything = jnp.zeros_like(ours.weight), jnp.ones((1,), ours.weight.dtype)
    the_taken = (taken[None], 0 * everything, everything if coupled else 0 * everything)
    if old is None:
        parts = [(ours.action, ours.weight, ours.weight), the_taken]
    elif new.enumerable and gradient == "auto":
        parts = [(ours.action, ours.weight, old.support(noise).weight), the_taken]
    elif coupled:
        parts = [(ours.action, ours.weight, nothing), the_taken]
    else:
        theirs = support(old, noise, gradient)
        parts = [(ours.action, ours.weight, nothing), (theirs.action, nothing, theirs.weight), the_taken]
    actions, new_weights, old_weights = (jnp.concatenate(part) for part in zip(*parts))
    return actions, new_weights, old_weights
