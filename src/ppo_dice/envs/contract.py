"""The one contract that every environment backend keeps.

A pool of `n` copies of one environment is reset once and then stepped in lock-step. An episode that ends is
restarted within the same step, so no transition of the stream is a phantom:

* `obs` is what the policy sees next: the first observation of the next episode where one ended;
* `final_obs` is the true next observation; it differs from `obs` only in rows whose episode ended;
* `terminated` and `truncated` are what the environment said, and both may be true: a termination that falls
  on the time limit is still a termination.

What is learned from and what is reported may differ: Atari's games are learned by the signs of rewards, life
by life, but counted in points, game by game. `score` and `over` are what is reported; whatever is over has
ended, but not the other way round.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped, UInt8

from ppo_dice.envs.spaces import are_alike
from ppo_dice.errors import UserError

Observations = Float32[np.ndarray, "n O"] | UInt8[np.ndarray, "n O"]
"""Rows of floats, or of bytes where there are images."""


class Step(NamedTuple):
    """What one lock-step of `n` environments gives back."""

    obs: Observations
    reward: Float[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    final_obs: Observations
    reported_score: Float[np.ndarray, " n"] | None = None
    """What counts for the return of the episode, where that is not the reward."""
    reported_end: Bool[np.ndarray, " n"] | None = None
    """Where an episode of the record ended, where that is not where one of learning did."""

    @property
    def ended(self) -> Bool[np.ndarray, " n"]:
        """Where an episode ended, for whichever reason."""
        return self.terminated | self.truncated

    @property
    def score(self) -> Float[np.ndarray, " n"]:
        """What counts for the return of the episode."""
        return self.reward if self.reported_score is None else self.reported_score

    @property
    def over(self) -> Bool[np.ndarray, " n"]:
        """Where an episode ended for the record."""
        return self.ended if self.reported_end is None else self.reported_end


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm and a record of the run need to know about the environment."""

    id: str
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    max_episode_steps: int | None
    backend: str
    engine: str
    """The physics or game engine with its version, e.g. `mujoco 3.3.0 (EnvPool 1.2.5)`."""
    pipeline: Mapping[str, Any] | None = None
    """Settings of what stands between an Atari game and its policy; None for everything else."""


@runtime_checkable
class Environments(Protocol):
    """A pool of copies of one environment, restarted as soon as an episode ends."""

    spec: EnvSpec
    num_envs: int

    def reset(self) -> Observations:
        """Start every copy on its own seed and return the flattened observations."""
        ...

    def step(self, actions: Shaped[np.ndarray, "n A"]) -> Step:
        """Step every copy with the policy's raw actions; bounds and offsets are applied here."""
        ...

    def stepping(self) -> AbstractContextManager[None]:
        """Entered around a loop of steps, so that a backend can arrange its threads for it."""
        ...

    def close(self) -> None:
        """Release processes and memory."""
        ...


def refuse_other_spaces(made: EnvSpec, model: EnvSpec) -> None:
    """Raise a `UserError` if an environment is not of the kind that a model belongs to."""
    for kind in ("observation_space", "action_space"):
        has, needs = getattr(made, kind), getattr(model, kind)
        if not are_alike(has, needs, bounds=kind == "action_space"):
            raise UserError(
                f"{made.id} has the {kind.replace('_', ' ')} {_in_one_line(has)}, but this model belongs to "
                f"{model.id} with {_in_one_line(needs)}."
            )


def _in_one_line(space: gymnasium.Space[Any]) -> str:
    return " ".join(str(space).split())
