"""Rollouts of a finite chain: all environments advance together, by inverse distribution functions."""

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ppo_dice.tabular.chains import Chain
from ppo_dice.tabular.validation import positive_count
from ppo_dice.types import Key, Rollout


def check_sizes(steps: int, n_envs: int, max_episode_steps: int | None) -> None:
    """Refuse a rollout of nothing."""
    positive_count("steps", steps)
    positive_count("n_envs", n_envs)
    positive_count("max_episode_steps", max_episode_steps)


def generator(key: Key) -> np.random.Generator:
    """NumPy's generator, seeded by a JAX key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def sample_chain(
    chain: Chain,
    reward: Float[np.ndarray, "S A"],
    is_terminal: Bool[np.ndarray, " S"],
    pi: Float[np.ndarray, "S A"],
    key: Key,
    *,
    steps: int,
    n_envs: int,
    max_episode_steps: int | None,
) -> Rollout:
    """`steps` steps of `n_envs` environments; whose episode ends begins another at once."""
    rng = generator(key)
    start = _draw(_cumulative(chain.initial), rng.random((steps + 1, n_envs)))
    action_luck, state_luck = rng.random((2, steps, n_envs))
    action_cdf, state_cdf = _cumulative(pi), _cumulative(chain.transition)
    limit = np.inf if max_episode_steps is None else max_episode_steps

    state, elapsed = np.zeros((2, steps + 1, n_envs), np.int32)
    action, successor = np.empty((2, steps, n_envs), np.int32)
    state[0] = start[0]
    for t in range(steps):
        action[t] = _draw(action_cdf[state[t]], action_luck[t])
        successor[t] = _draw(state_cdf[state[t], action[t]], state_luck[t])
        ended = is_terminal[successor[t]] | (elapsed[t] + 1 >= limit)
        state[t + 1] = np.where(ended, start[t + 1], successor[t])
        elapsed[t + 1] = np.where(ended, 0, elapsed[t] + 1)

    terminated, truncated = is_terminal[successor], elapsed[:-1] + 1 >= limit
    one_hot = np.eye(len(pi), dtype=np.float32)
    return Rollout(
        obs=one_hot[state],
        final_obs=one_hot[successor] * (terminated | truncated)[..., None],
        action=action[..., None],
        reward=reward[state[:-1], action].astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        elapsed=elapsed[:-1],
    )


def _cumulative(probability: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... n"]:
    """Sums that end in exactly 1, so that no luck below 1 draws what is impossible."""
    total = probability.cumsum(-1)
    return total / total[..., -1:]


def _draw(cumulative: Float[np.ndarray, "... n"], luck: Float[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """The category in whose share of [0, 1) the luck lies."""
    return (cumulative <= luck[..., None]).sum(-1)
