"""The exact laboratory: small systems whose visitation distributions and divergences are known, in float64.

>>> from ppo_dice.tabular import garnet
>>> mdp = garnet(n_states=10, n_actions=3, branching=4, gamma=0.95, seed=0)
>>> mdp.divergence(pi_new, pi_old, "kl")  # KL(μ'‖μ), with no sampling and no network

Both kinds of system are Gymnasium environments too, so every algorithm can be trained on them.
"""

from ppo_dice.tabular.bounds import (
    PerformanceBounds,
    Sandwich,
    kl_divergence,
    performance_bounds,
    sandwich,
)
from ppo_dice.tabular.chains import Chain, Visitation
from ppo_dice.tabular.examples import (
    aliased_ledge,
    aliased_ledge_policy,
    four_rooms,
    garnet,
    random_policy,
    river_swim,
)
from ppo_dice.tabular.linear_gaussian import (
    KLParts,
    LinearGaussian,
    LinearPolicy,
    Mixture,
    Normal,
)
from ppo_dice.tabular.mdp import TabularMDP, Values
from ppo_dice.tabular.objectives import PopulationObjective, phi_divergence

__all__ = [
    "Chain",
    "KLParts",
    "LinearGaussian",
    "LinearPolicy",
    "Mixture",
    "Normal",
    "PerformanceBounds",
    "PopulationObjective",
    "Sandwich",
    "TabularMDP",
    "Values",
    "Visitation",
    "aliased_ledge",
    "aliased_ledge_policy",
    "four_rooms",
    "garnet",
    "kl_divergence",
    "performance_bounds",
    "phi_divergence",
    "random_policy",
    "river_swim",
    "sandwich",
]
