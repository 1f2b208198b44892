"""The arrays that flow between the stages, and how JAX sees a config.

Shapes are those of one seed: `T` steps of `N` environments. A population adds a leading `S`.
"""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

Key = PRNGKeyArray
if TYPE_CHECKING:
    AnyArray = Any  # NumPy's arrays are taken wherever JAX takes them
else:
    AnyArray = Array | np.ndarray
Scalar = Float[Array, ""] | np.floating[Any] | float
Metrics = dict[str, Float[AnyArray, "..."]]
"""Scalars (or histories of them) by their tag, e.g. `train/value_loss`."""

Config = TypeVar("Config")


class Rollout(eqx.Module):
    """What one policy experienced in `T` steps of `N` environments.

    `obs` [T + 1, N, *O] is what the policy saw at every step, and after the last. Where an episode ended at
    step t, `obs[t + 1]` is the first observation of the *next* episode, and `final_obs[t]` [N, *O] holds the
    true next one (elsewhere it is zero). `action` is the sampled one, before any clipping. `elapsed` counts
    the steps of the episode before this one.
    """

    obs: Shaped[AnyArray, "..."]
    final_obs: Shaped[AnyArray, "..."]
    action: Shaped[AnyArray, "*S T N A"]
    reward: Float[AnyArray, "*S T N"]
    terminated: Bool[AnyArray, "*S T N"]
    truncated: Bool[AnyArray, "*S T N"]
    elapsed: Int[AnyArray, "*S T N"]

    @property
    def ended(self) -> Bool[AnyArray, "*S T N"]:
        """Where an episode ended, for whichever reason."""
        return self.terminated | self.truncated


class Batch(eqx.Module):
    """The transitions of one rollout in a row (B = T · N), with what the policy update needs of them."""

    obs: Shaped[Array, "B *O"]
    action: Shaped[Array, "B A"]
    log_prob: Float[Array, " B"]
    advantage: Float[Array, " B"]
    raw_advantage: Float[Array, " B"]
    """The same before it was standardised."""
    value_target: Float[Array, " B"]


@dataclasses.dataclass(frozen=True)
class ActionKind:
    """What an action is made of: `size` real numbers, or one category for each of `counts`."""

    size: int = 0
    counts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ImageKind:
    """An image: its size, where its channels are, and the largest value of a pixel."""

    height: int
    width: int
    channels: int
    channels_first: bool = False
    highest: float = 255.0

    @property
    def size(self) -> int:
        """Bytes."""
        return self.height * self.width * self.channels


@dataclasses.dataclass(frozen=True)
class ObservationKind:
    """What an observation is made of: `size` real numbers and some images.

    Without images it is a row of float32. With images it is a row of bytes: those of the images in turn, a
    byte for each value, and behind them the four bytes of each number.
    """

    size: int = 0
    images: tuple[ImageKind, ...] = ()


class Actor(eqx.Module):
    """All that is needed to act: a policy, and the statistics by which it sees observations."""

    policy: Any
    normalizer: Any

    def __call__(self, obs: Shaped[Array, "*O"]) -> Any:
        """π(·|s) of a raw observation."""
        return self.policy(self.normalizer(obs))


def register_config(cls: type[Config]) -> type[Config]:
    """Make a config a JAX tree: its numbers are leaves, and everything else is part of its structure.

    A field that takes a number *or a word* is a leaf when it holds the number. A config within a config is a
    branch. A traced copy is put together without its constructor, whose checks are about numbers, not arrays.
    """
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    may_be_traced = {
        field.name
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        if (float in (hints[field.name], *get_args(hints[field.name])) and not field.metadata.get("static"))
        or dataclasses.is_dataclass(hints[field.name])
    }

    def flatten(config: Config) -> tuple[list[Any], tuple[Any, ...]]:
        values = {name: getattr(config, name) for name in names}
        traced = [name for name in names if name in may_be_traced and not isinstance(values[name], str)]
        rest = tuple((name, value) for name, value in values.items() if name not in traced)
        return [values[name] for name in traced], (tuple(traced), rest)

    def unflatten(structure: tuple[Any, ...], leaves: Iterable[Any]) -> Config:
        traced, rest = structure
        config = object.__new__(cls)
        for name, value in (*zip(traced, leaves), *rest):
            object.__setattr__(config, name, value)
        return config

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def traced_config(config: Any) -> Any:
    """The same config with its numbers as float32 scalars, ready for a compiled function."""
    return jax.tree.map(np.float32, config)
