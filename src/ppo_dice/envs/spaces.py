"""Gymnasium's spaces as plain arrays: what the networks read and what the environments are given.

Observations become one float32 vector; where there are images, a row of bytes: those of the images in turn,
a byte for each value, and then the four bytes of each number of that vector. A policy gives float32 numbers
for a Box and int32 category indices, counted from 0, for a product of categories: Discrete, MultiDiscrete,
MultiBinary. Whatever does not change between steps is worked out once, in the functions that
return a function.
"""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Shaped

from ppo_dice.errors import UserError

Space = gymnasium.Space[Any]
Path = tuple[Any, ...]

_SUPPORTED_OBSERVATIONS = (
    "Box vectors and images, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
)
_SUPPORTED_ACTIONS = "Box of floats, Discrete, MultiDiscrete and MultiBinary"


def check_spaces(observation_space: Space, action_space: Space, env_id: str) -> None:
    """Raise a `UserError` that names the first thing the library cannot handle."""
    for path, leaf in _leaves(observation_space):
        _check_observation_leaf(path, leaf, env_id)
    if observation_size(observation_space) == 0 and not image_spaces(observation_space):
        raise UserError(f"{env_id} has an empty observation space, so there is nothing to learn from.")
    _check_action_space(action_space, env_id)


def are_alike(one: Space, other: Space, *, bounds: bool) -> bool:
    """Return whether a policy for one space fits the other.

    Engines declare the same floats in another precision, and where no bounds count, with others.
    """
    return bool(_comparable(one, bounds) == _comparable(other, bounds))


def observation_size(space: Space) -> int:
    """Return how many real numbers the flattened observation has; images do not count."""
    return sum(_leaf_size(leaf) for _, leaf in _leaves(space) if not is_image(leaf))


def image_spaces(space: Space) -> list[spaces.Box]:
    """Return the spaces of the images in an observation, in the order in which their bytes follow."""
    return [leaf for _, leaf in _leaves(space) if isinstance(leaf, spaces.Box) and is_image(leaf)]


def is_image(space: Space) -> bool:
    """Whether these are pixels: three axes of which one is the channels, or two axes of bytes."""
    if not isinstance(space, spaces.Box):
        return False
    return len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)


def observation_bytes(space: Space) -> int:
    """Return how many bytes a flattened observation takes."""
    return sum(int(np.prod(image.shape)) for image in image_spaces(space)) + 4 * observation_size(space)


def numbers_of(space: Space, flat: Shaped[np.ndarray, "*B O"]) -> Float32[np.ndarray, "*B N"]:
    """Return the real numbers of flattened observations, as a view."""
    if flat.dtype != np.uint8:
        return flat
    size = observation_size(space)
    numbers = flat[..., flat.shape[-1] - 4 * size :]
    return numbers.view(np.float32) if size else np.empty((*flat.shape[:-1], 0), np.float32)


def action_size(space: Space) -> int:
    """Return the length A of one action as the policy gives it: numbers of a Box or category indices."""
    return int(np.prod(space.shape)) if isinstance(space, spaces.Box) else len(category_counts(space))


def category_counts(space: Space) -> tuple[int, ...]:
    """Return how many categories each part of the action has; a Box has none, hence `()`."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(count) for count in space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    return ()


def flatten_observations(space: Space, batch: Any) -> Shaped[np.ndarray, "n O"]:
    """Flatten a batch given as one array per leaf, in the structure of the space."""
    return observation_flattener(space)(batch)


def flatten_observation(space: Space, observation: Any) -> Shaped[np.ndarray, " O"]:
    """Flatten a single observation."""
    flat: Shaped[np.ndarray, " O"] = flatten_observations(space, stack_observations(space, [observation]))[0]
    return flat


def to_env_actions(space: Space, actions: Shaped[np.ndarray, "n A"]) -> np.ndarray:
    """Turn the policy's actions into the batch the environments expect; never changes its input."""
    return action_converter(space)(actions)


def unstack_actions(space: Space, env_actions: np.ndarray) -> list[Any]:
    """Split what `to_env_actions` gave into single actions of the space."""
    if isinstance(space, spaces.Box):
        return [env_actions[copy, ...] for copy in range(len(env_actions))]  # an array even of shape ()
    return list(env_actions)


def stack_observations(space: Space, observations: list[Any]) -> Any:
    """Gather single observations into the batched form of the space."""
    if isinstance(space, spaces.Dict):
        return {
            key: stack_observations(part, [one[key] for one in observations])
            for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            stack_observations(part, [one[index] for one in observations])
            for index, part in enumerate(space.spaces)
        )
    return np.array(observations)


def check_observation(space: Space, observation: Any, env_id: str) -> None:
    """Raise a `UserError` if an observation does not have the structure its space declares."""
    for path, leaf in _leaves(space):
        try:
            value = _at(observation, path)
        except (KeyError, IndexError, TypeError):
            raise UserError(
                f"{env_id} returned an observation without the part {_name(path)} its space declares."
            ) from None
        if np.shape(value) != leaf.shape:
            raise UserError(
                f"{env_id} returned {_name(path)} of shape {np.shape(value)}, "
                f"but its observation space declares {leaf.shape}."
            )
        if not isinstance(leaf, spaces.Box) and not leaf.contains(np.asarray(value, leaf.dtype)[()]):
            raise UserError(f"{env_id} returned {_name(path)} = {value}, which is not in {leaf}.")


def observation_flattener(space: Space) -> Callable[[Any], Shaped[np.ndarray, "n O"]]:
    """Return the function that flattens batches of this space."""
    images = [(path, _image_flattener(leaf)) for path, leaf in _leaves(space) if is_image(leaf)]
    numbers = [(path, _leaf_flattener(leaf)) for path, leaf in _leaves(space) if not is_image(leaf)]
    if not images:
        return _side_by_side(numbers)
    if not numbers:
        return _side_by_side(images)
    flatten_images, flatten_numbers = _side_by_side(images), _side_by_side(numbers)

    def flatten(batch: Any) -> Shaped[np.ndarray, "n O"]:
        bytes_of_numbers = np.ascontiguousarray(flatten_numbers(batch)).view(np.uint8)
        return np.concatenate([flatten_images(batch), bytes_of_numbers], axis=1)

    return flatten


def _side_by_side(
    parts: list[tuple[Path, Callable[[Any], Shaped[np.ndarray, "n O"]]]],
) -> Callable[[Any], Shaped[np.ndarray, "n O"]]:
    if len(parts) == 1:
        path, flatten_leaf = parts[0]
        return flatten_leaf if path == () else lambda batch: flatten_leaf(_at(batch, path))
    return lambda batch: np.concatenate(
        [flatten_leaf(_at(batch, path)) for path, flatten_leaf in parts], axis=1
    )


def _image_flattener(space: Space) -> Callable[[Any], Shaped[np.ndarray, "n O"]]:
    size = int(np.prod(space.shape or ()))

    def flatten(batch: Any) -> Shaped[np.ndarray, "n O"]:
        pixels = np.asarray(batch).reshape(-1, size)
        return pixels if pixels.dtype == np.uint8 else pixels.astype(np.uint8)

    return flatten


def action_converter(space: Space) -> Callable[[Shaped[np.ndarray, "n A"]], np.ndarray]:
    """Return the function that turns the policy's actions into the environment's."""
    if isinstance(space, spaces.Box):
        return _box_converter(space)
    return _category_converter(space)


def _box_converter(space: spaces.Box) -> Callable[[Shaped[np.ndarray, "n A"]], np.ndarray]:
    low, high, shape, dtype = space.low.ravel(), space.high.ravel(), space.shape, space.dtype

    def convert(actions: Shaped[np.ndarray, "n A"]) -> np.ndarray:
        # A control cost must be paid for the force that is applied, not for the one wished for.
        clipped: np.ndarray = np.minimum(np.maximum(actions, low), high)  # faster than np.clip
        return clipped.astype(dtype, copy=False).reshape(len(actions), *shape)

    return convert


def _category_converter(space: Space) -> Callable[[Shaped[np.ndarray, "n A"]], np.ndarray]:
    start = np.ravel(getattr(space, "start", 0))
    shape, dtype = space.shape or (), space.dtype

    def convert(actions: Shaped[np.ndarray, "n A"]) -> np.ndarray:
        env_actions: np.ndarray = (actions + start).astype(dtype)
        return env_actions.reshape(len(actions), *shape)

    return convert


def _leaf_flattener(space: Space) -> Callable[[Any], Float32[np.ndarray, "n O"]]:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _one_hot_flattener(space)
    size = _leaf_size(space)

    def flatten(batch: Any) -> Float32[np.ndarray, "n O"]:
        rows = np.asarray(batch).reshape(-1, size)
        if rows.dtype == np.float32:
            return rows
        with np.errstate(
            over="ignore"
        ):  # beyond float32 is infinite: the finite check of the update names it
            return rows.astype(np.float32)

    return flatten


def _one_hot_flattener(space: Space) -> Callable[[Any], Float32[np.ndarray, "n O"]]:
    counts = np.asarray(category_counts(space))
    # Category c of part d becomes column (sum of the counts before d) + c - start.
    columns_of_zero = np.cumsum(counts) - counts - np.ravel(getattr(space, "start", 0))
    width = int(counts.sum())

    def flatten(batch: Any) -> Float32[np.ndarray, "n O"]:
        columns = np.asarray(batch).reshape(-1, len(counts)) + columns_of_zero
        one_hot = np.zeros((len(columns), width), np.float32)
        one_hot[np.arange(len(columns))[:, None], columns] = 1.0
        return one_hot

    return flatten


def _leaf_size(space: Space) -> int:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return sum(category_counts(space))
    return int(np.prod(space.shape or ()))


def _comparable(space: Space, bounds: bool) -> Space:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _comparable(part, bounds) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_comparable(part, bounds) for part in space.spaces])
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        return space
    if not bounds:
        return spaces.Box(-np.inf, np.inf, space.shape, np.float32)
    with np.errstate(over="ignore"):  # a bound beyond float32 is none
        return spaces.Box(np.float32(space.low), np.float32(space.high), dtype=np.float32)


def _leaves(space: Space, path: Path = ()) -> Iterator[tuple[Path, Space]]:
    """Yield the spaces that are neither Dict nor Tuple, in the order in which they are flattened."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index))
    else:
        yield path, space


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _name(path: Path) -> str:
    return "an observation" if not path else "the observation " + "".join(f"[{key!r}]" for key in path)


def _check_observation_leaf(path: Path, space: Space, env_id: str) -> None:
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        where = "" if not path else f" at {''.join(f'[{key!r}]' for key in path)}"
        raise UserError(
            f"{env_id} has the observation space {type(space).__name__}{where}, which is not supported; "
            f"supported are {_SUPPORTED_OBSERVATIONS}."
        )
    if isinstance(space, spaces.Box) and len(space.shape) > 3:
        raise UserError(
            f"{env_id} has observations of {len(space.shape)} axes, {space.shape}; an image has three: "
            "height, width and channels. Stack frames along the channels."
        )
    if is_image(space) and space.dtype not in (np.uint8, np.bool_):
        raise UserError(
            f"{env_id} has images of {space.dtype}, which are not supported: pixels must be uint8 or bool. "
            "Wrap the environment in one that returns them so, or in gymnasium.wrappers.FlattenObservation."
        )


def _check_action_space(space: Space, env_id: str) -> None:
    if isinstance(space, spaces.Box) and not np.issubdtype(space.dtype, np.floating):
        raise UserError(
            f"{env_id} has a Box action space of {space.dtype}, which is not supported; "
            f"supported are {_SUPPORTED_ACTIONS}, and whole numbers belong in a MultiDiscrete."
        )
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise UserError(
            f"{env_id} has the action space {type(space).__name__}, which is not supported; "
            f"supported are {_SUPPORTED_ACTIONS}."
        )
    if action_size(space) == 0:
        raise UserError(f"{env_id} has an empty action space, so there is nothing to decide.")
