"""The gradient of KL(μ'‖μ) with respect to the policy by the score function, as printed and as it should be.

With g given, the residual x of one sampled a', and weights w ∝ eˣ with E w = 1 (Donsker and Varadhan):

    ∇D = (1−γ) E_ρ,a~π'[g ∇log π'] + γ E_μ[w E_{a'~π'}[g(s',a') ∇log π'(a'|s')]]

Eq. 20 of the paper takes the same a' in w and in g·∇log π'. As w falls with g(s',a') the second term is then
scaled by about 1 − γḡ, where ḡ is the level of g, which nothing determines. All expectations are exact sums.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ppo_dice.theory.pairs import Pair, tabular_pair

LEVELS = tuple(float(level) for level in np.linspace(-1, 3, 33))
VERSIONS = ("printed", "two actions", "baseline")


def score_function(
    levels: Sequence[float] = LEVELS, n_mdps: int = 30, kl: float = 0.03, seed: int = 0
) -> dict[str, Any]:
    """Cosine with the true gradient, for each version a list over processes of lists over levels."""
    cosines: dict[str, list[list[float]]] = {version: [] for version in VERSIONS}
    for number in range(seed, seed + n_mdps):
        pair = tabular_pair(number, kl, deterministic=True)
        best = pair.objective.optimum()
        centred = best - (pair.objective.new.mu * best).sum()
        for version in VERSIONS:
            row = [_cosine(pair, centred + level, version) for level in levels]
            cosines[version].append(row)
    sizes = {"n_mdps": n_mdps, "kl": kl, "seed": seed}
    return {"sizes": sizes, "gamma": pair.mdp.gamma, "levels": list(levels), "cosines": cosines}


def true_gradient(pair: Pair, g: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """∇ of (1−γ)E_ρ[V'_g] − log E_μ[eˣ] with respect to the logits of π', x with the mean over a'."""
    x = pair.objective.residual(g)
    weight = pair.objective.old.mu * np.exp(x - x.max())
    arrivals = np.einsum("sa,sat->t", weight / weight.sum(), pair.objective.chain.transition)
    visits = (1 - pair.mdp.gamma) * pair.objective.chain.initial + pair.mdp.gamma * arrivals
    return visits[:, None] * _score(pair.new, pair.new * g)


def score_gradient(pair: Pair, g: Float[np.ndarray, "S A"], version: str) -> Float[np.ndarray, "S A"]:
    """What the score function gives on average, with the a' of the residual sampled."""
    gamma, chain = pair.mdp.gamma, pair.objective.chain
    initial = (1 - gamma) * chain.initial[:, None] * _score(pair.new, pair.new * g)
    reached = np.einsum("sa,sat->sat", pair.objective.old.mu, chain.transition)
    # w falls with g(s',a') alone: what arrives from (s,a) and what a' does to it are two factors.
    arriving = np.einsum("sat,sa->t", reached, np.exp(g - g.max()))
    taking = pair.new * np.exp(-gamma * (g - g.max()))
    total = arriving @ taking.sum(-1)
    if version == "two actions":
        share = (arriving * taking.sum(-1))[:, None] * pair.new
    else:
        share = arriving[:, None] * taking
    value = g - (pair.new * g).sum(-1, keepdims=True) if version == "baseline" else g
    return initial + gamma * _score(pair.new, share * value / total)


def _score(pi: Float[np.ndarray, "S A"], mass: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """Σ_a mass(s,a) ∇log π(a|s), by the logits: mass − π Σ_a mass."""
    return mass - pi * mass.sum(-1, keepdims=True)


def _cosine(pair: Pair, g: Float[np.ndarray, "S A"], version: str) -> float:
    true, found = true_gradient(pair, g), score_gradient(pair, g, version)
    return float((true * found).sum() / np.sqrt((true**2).sum() * (found**2).sum()))
