"""Two policies as far apart as is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from ppo_dice.tabular import LinearPolicy, PopulationObjective, TabularMDP, garnet, random_policy
from ppo_dice.tabular.linear_gaussian import LinearGaussian

N_STATES, N_ACTIONS, BRANCHING, GAMMA = 10, 3, 3, 0.95
FLOOR = 0.1
"""What every policy keeps for uniform choice, so that no ratio is extreme."""

SYSTEM = LinearGaussian(a=0.9, b=0.5, noise=0.3, gamma=0.9)
OLD, TOWARDS = LinearPolicy(-0.3, 0.0, 0.5), LinearPolicy(-0.5, 0.3, 0.4)

_BISECTIONS = 50


@dataclass(frozen=True)
class Pair:
    """A random process with a data policy π and another one π'."""

    mdp: TabularMDP
    new: Float[np.ndarray, "S A"]
    old: Float[np.ndarray, "S A"]

    @cached_property
    def objective(self) -> PopulationObjective:
        """KL as a long rollout with restarts sees it: every visited state is an initial one."""
        initial = self.mdp.stationary(self.old)
        return self.mdp.objective(self.new, self.old, "kl", chain="restart", initial=initial)


def mixed_policy(mdp: TabularMDP, seed: int) -> Float[np.ndarray, "S A"]:
    """A random policy without small probabilities."""
    return FLOOR / mdp.n_actions + (1 - FLOOR) * random_policy(mdp, seed)


def tabular_pair(seed: int, kl: float, *, deterministic: bool) -> Pair:
    """A Garnet process and a pair of policies with KL(μ'‖μ) = `kl`."""
    mdp = garnet(N_STATES, N_ACTIONS, BRANCHING, GAMMA, seed, deterministic)
    old, other = mixed_policy(mdp, seed), mixed_policy(mdp, seed + 1000)

    def pair(step: float) -> Pair:
        return Pair(mdp, (1 - step) * old + step * other, old)

    return pair(_step_to(kl, lambda step: pair(step).objective.exact))


def gaussian_pair(kl: float, system: LinearGaussian = SYSTEM) -> LinearPolicy:
    """The π' on the line from `OLD` to `TOWARDS` with KL(μ'‖μ) = `kl` in this system."""

    def policy(step: float) -> LinearPolicy:
        return LinearPolicy(*(old + step * (other - old) for old, other in zip(OLD, TOWARDS)))

    return policy(_step_to(kl, lambda step: system.divergence(policy(step), OLD).total))


def _step_to(kl: float, distance: Callable[[float], float]) -> float:
    """The step in [0, 1] that leads as far as asked, by bisection."""
    if kl == 0:
        return 0.0
    near, far = 0.0, 1.0
    if distance(far) < kl:
        raise ValueError(f"no step in this direction leads to a KL of {kl}")
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        near, far = (middle, far) if distance(middle) < kl else (near, middle)
    return far
