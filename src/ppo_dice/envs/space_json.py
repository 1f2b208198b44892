"""Spaces as strict JSON, so that a saved model can be used without its environment."""

from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_dice.envs.spaces import Space


def space_to_json(space: Space) -> dict[str, Any]:
    """Describe a supported space by JSON values alone; infinities are strings, for JSON has none."""
    if isinstance(space, spaces.Dict):
        # Pairs, not an object: the order of the keys is the order of the flattened observation.
        return {
            "type": "Dict",
            "spaces": [[key, space_to_json(part)] for key, part in space.spaces.items()],
        }
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    shape, dtype = [int(length) for length in space.shape or ()], str(space.dtype)
    if isinstance(space, spaces.Box):
        bounds = {"low": _numbers(space.low), "high": _numbers(space.high)}
        return {"type": "Box", "shape": shape, "dtype": dtype, **bounds}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": dtype}
    if isinstance(space, spaces.MultiDiscrete):
        counts = {"nvec": _numbers(space.nvec), "start": _numbers(space.start)}
        return {"type": "MultiDiscrete", "shape": shape, "dtype": dtype, **counts}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": shape if isinstance(space.n, tuple) else int(space.n)}
    raise TypeError(f"{type(space).__name__} is not a supported space")


def space_from_json(description: dict[str, Any]) -> Space:
    """Rebuild the space that `space_to_json` described."""
    kind = description["type"]
    if kind == "Dict":
        return spaces.Dict([(key, space_from_json(part)) for key, part in description["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(part) for part in description["spaces"]])
    if kind == "Discrete":
        dtype = np.dtype(description["dtype"]).type
        return spaces.Discrete(description["n"], start=description["start"], dtype=dtype)
    if kind == "MultiBinary":
        return spaces.MultiBinary(description["n"])
    if kind == "Box":
        low, high = _array(description, "low"), _array(description, "high")
        return spaces.Box(low, high, dtype=low.dtype.type)
    if kind == "MultiDiscrete":
        counts, start = _array(description, "nvec"), _array(description, "start")
        return spaces.MultiDiscrete(counts, dtype=counts.dtype.type, start=start)
    raise ValueError(f"{kind!r} is not a kind of space this version knows")


def _numbers(array: np.ndarray) -> Any:
    """Return one value where all are equal, as in most bounds, and a flat list otherwise."""
    values = [_value(number) for number in array.ravel().tolist()]
    return values[0] if values and all(value == values[0] for value in values) else values


def _value(number: int | float) -> int | float | str:
    return number if np.isfinite(number) else str(float(number))


def _array(description: dict[str, Any], name: str) -> np.ndarray:
    dtype, shape, values = np.dtype(description["dtype"]), tuple(description["shape"]), description[name]
    numbers = [float(value) if isinstance(value, str) else value for value in _listed(values, shape)]
    return np.array(numbers, dtype).reshape(shape)


def _listed(values: Any, shape: tuple[int, ...]) -> list[Any]:
    return values if isinstance(values, list) else [values] * int(np.prod(shape))
