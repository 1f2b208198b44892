"""Arrays and JSON on disk: safetensors, atomic, and never a pickle."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from ppo_dice.config import FORMAT_VERSION
from ppo_dice.errors import UserError


def save_arrays(path: Path, tree: Any, description: dict[str, Any]) -> None:
    """Write a tree of arrays, named by their place in it, and a JSON description in the file's header."""
    header = {"ppo_dice": json.dumps({"format_version": FORMAT_VERSION, **description}, sort_keys=True)}
    write_atomically(path, to_bytes(_named(tree), header))


def read_description(path: Path) -> dict[str, Any]:
    """The description in a file's header."""
    return _read(path)[0]


def load_arrays(path: Path, like: Any) -> Any:
    """The arrays of a file in the structure of `like`, whose own arrays tell names, shapes and dtypes."""
    _, arrays = _read(path)
    wanted = _named(like)
    for name, leaf in wanted.items():
        found = arrays.get(name)
        if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
            what = "is missing" if found is None else f"is {found.dtype}{list(found.shape)}"
            raise UserError(
                f"{path} does not fit: the array {name} {what}, but {leaf.dtype}{list(leaf.shape)} is needed."
            )
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever happens meanwhile."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _named(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(place, simple=True, separator="."): np.ascontiguousarray(leaf)
        for place, leaf in leaves
    }


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise UserError(f"There is no model file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is not a whole model file ({error}); it may be torn or truncated.") from None
    if "ppo_dice" not in header:
        raise UserError(f"{path} is a safetensors file, but was not written by ppo-dice.")
    try:
        description = json.loads(header["ppo_dice"])
        version = int(description["format_version"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} has a description that cannot be read; the file is damaged.") from None
    if version > FORMAT_VERSION:
        raise UserError(
            f"{path} has format {version}, but this version reads up to {FORMAT_VERSION}; upgrade ppo-dice."
        )
    return description, arrays
