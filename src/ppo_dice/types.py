"""The arrays that flow between the stages, and how JAX sees a config.

Shapes are those of one seed: `T` steps of `N` environments. A population adds a leading `S`.
"""

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

Key = PRNGKeyArray
Metrics = dict[str, Float[Array, ""]]
"""Scalars by their tag, e.g. `train/value_loss`."""

Config = TypeVar("Config")


class Rollout(eqx.Module):
    """What one policy experienced in `T` steps of `N` environments.

    `obs[t]` is what the policy saw at step t; `obs[T]` comes after the last step. Where an episode ended at
    step t, `obs[t + 1]` is the first observation of the *next* episode and `final_obs[t]` the true next one
    (elsewhere `final_obs` is zero). `action` is the sampled one, before any clipping.
    """

    obs: Shaped[Array, "T+1 N *O"]
    final_obs: Shaped[Array, "T N *O"]
    action: Shaped[Array, "T N A"]
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]

    @property
    def ended(self) -> Bool[Array, "T N"]:
        """Where an episode ended, for whichever reason."""
        return self.terminated | self.truncated


class Batch(eqx.Module):
    """The transitions of one rollout in a row (B = T · N), with what the policy update needs of them."""

    obs: Float[Array, "B *O"]
    action: Shaped[Array, "B A"]
    log_prob: Float[Array, " B"]
    advantage: Float[Array, " B"]
    value_target: Float[Array, " B"]


@dataclasses.dataclass(frozen=True)
class ActionKind:
    """What an action is made of: `size` real numbers, or one category for each of `counts`."""

    size: int = 0
    counts: tuple[int, ...] = ()


class Actor(eqx.Module):
    """All that is needed to act: a policy, and the statistics by which it sees observations."""

    policy: Any
    normalizer: Any

    def __call__(self, obs: Shaped[Array, "*O"]) -> Any:
        """π(·|s) of a raw observation."""
        return self.policy(self.normalizer(obs))


def register_config(cls: type[Config]) -> type[Config]:
    """Make a config a JAX tree: its numbers are leaves, and everything else is part of its structure."""
    traced = [field.name for field in dataclasses.fields(cls) if field.type in (float, float | None)]  # type: ignore[arg-type]
    static = [field.name for field in dataclasses.fields(cls) if field.name not in traced]  # type: ignore[arg-type]
    return jax.tree_util.register_dataclass(cls, data_fields=traced, meta_fields=static)


def traced_config(config: Any) -> Any:
    """The same config with its numbers as float32 scalars, ready for a compiled function."""
    return jax.tree.map(np.float32, config)
