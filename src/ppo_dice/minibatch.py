"""Shuffle and split."""

import jax
from jaxtyping import Array, Int

from ppo_dice.types import Key


def epoch_minibatches(key: Key, size: int, n_minibatches: int) -> Int[Array, "M B"]:
    """One pass over `size` rows in random order: row numbers, a line per minibatch."""
    return jax.random.permutation(key, size).reshape(n_minibatches, size // n_minibatches)
