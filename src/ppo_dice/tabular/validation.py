"""Refuse what is no model, no policy and no rollout, in one sentence that says what is wrong."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ppo_dice.errors import UserError

_TOLERANCE = 1e-6
"""How far probabilities may miss a sum of one: those of a float32 network do. The rest is normalised away."""


def real_array(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """A float64 copy of `values`, of this shape and with finite numbers only."""
    try:
        array = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be an array of numbers.") from None
    if array.shape != shape:
        raise UserError(f"{name} must have the shape {shape}, but has {array.shape}.")
    if not np.isfinite(array).all():
        raise UserError(f"{name} must hold finite numbers only, but holds {array[~np.isfinite(array)][0]}.")
    return array


def probabilities(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """The same for distributions along the last axis, normalised to float64's precision."""
    array = real_array(name, values, shape)
    if (array < 0).any():
        raise UserError(f"{name} must hold no negative probabilities, but holds {array.min():.6g}.")
    total = array.sum(-1)
    wrong = np.abs(total - 1) > _TOLERANCE
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        where = f"{name}[{', '.join(map(str, place))}]" if place else name
        raise UserError(f"{where} must sum to one, but sums to {total[place]:.9g}.")
    return array / total[..., None]


def discount(gamma: float) -> float:
    """γ in [0, 1)."""
    if not 0 <= gamma < 1:
        raise UserError(f"gamma must be in [0, 1), but is {gamma}.")
    return float(gamma)


def positive_count(name: str, value: int | None) -> None:
    """A whole number from 1, where one is given."""
    if value is not None and value < 1:
        raise UserError(f"{name} must be at least 1, but is {value}.")


def read_only(array: np.ndarray) -> np.ndarray:
    """The same array, which nobody can change any more."""
    array.setflags(write=False)
    return array
