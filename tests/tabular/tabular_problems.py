"""Random processes with two policies to compare, for hypothesis to draw by the hundred."""

from dataclasses import dataclass
from functools import cached_property

import hypothesis.strategies as st
import numpy as np

from ppo_dice.divergence import DIVERGENCES
from ppo_dice.tabular import garnet, random_policy

ORDERS = {"alpha": [{"order": order} for order in (-0.5, 0.5, 1.5, 2.0)]}
DIVERGENCE_CASES = [(name, parameters) for name in DIVERGENCES for parameters in ORDERS.get(name, [{}])]


@dataclass(frozen=True)
class Problem:
    """Drawn as numbers and built on first use: hypothesis wants no checks of types while it draws.

    π' is `step` of the way from π to another policy; probabilities stay away from 0, so that 1e-9 is fair.
    """

    seed: int
    shape: tuple
    gamma: float
    n_terminal: int
    step: float
    restart: bool

    @cached_property
    def mdp(self):
        n_states, n_actions = self.shape
        deterministic = self.seed % 3 == 0
        branching = min(3, n_states)
        return garnet(n_states, n_actions, branching, self.gamma, self.seed, deterministic, self.n_terminal)

    @cached_property
    def old(self):
        return self._mixed_policy(1)

    @cached_property
    def new(self):
        return (1 - self.step) * self.old + self.step * self._mixed_policy(2)

    @cached_property
    def chain(self):
        if not self.restart:
            return {"chain": "absorbing"}
        return {"chain": "restart", "initial": self.mdp.stationary(self.old)}

    @cached_property
    def rng(self):
        return np.random.default_rng(self.seed + 3)

    def random_g(self, size=1.0):
        return size * self.rng.standard_normal(self.shape)

    def objective(self, name, **parameters):
        return self.mdp.objective(self.new, self.old, name, **self.chain, **parameters)

    def _mixed_policy(self, place):
        return 0.1 / self.shape[1] + 0.9 * random_policy(self.mdp, self.seed + place)


def not_too_small(gamma):
    """γ, or 0 where the chance to be in a state some steps away would vanish under one policy alone."""
    return gamma if gamma > 1e-30 else 0.0


def problems():
    # Few shapes: φ runs through JAX, which compiles for each.
    return st.builds(
        Problem,
        seed=st.integers(0, 2**32),
        shape=st.sampled_from([(2, 2), (6, 3)]),
        gamma=st.floats(0, 0.99).map(not_too_small),
        n_terminal=st.integers(0, 1),
        step=st.floats(0.01, 1.0),
        restart=st.booleans(),
    )
