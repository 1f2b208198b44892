"""Policy improvement with exact updates, and how often each update makes the policy worse.

With a free choice in every state, the exact maximisers of L, of TRPO's and of PPO's objective never degrade:
each state improves on its own. Here states share parameters, as in a network: a `PolicyFamily` is a fine grid
over them. One exact update maximises a score over the whole family, seen from the data policy π:

    π_{i+1} = argmax_π' score(π' | π_i)        L(π'|π) = J(π) + E_d[h],   h(s) = E_{a~π'(·|s)} A^π(s,a)

Nothing is sampled and nothing left unconverged, so whatever goes wrong is the fault of the score. All norms
are L1, and ε = max_s |h(s)| belongs to π', not to π alone.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from ppo_dice.tabular.bounds import kl_divergence
from ppo_dice.tabular.chains import expectation
from ppo_dice.tabular.examples import garnet
from ppo_dice.tabular.mdp import TabularMDP
from ppo_dice.tabular.validation import probabilities

Direction = Literal["new_old", "old_new"]
"""Which policy comes first in a KL between actions."""

NEGLIGIBLE = 1e-18
"""The weight γᵗ of a step that no longer counts."""

ROUNDING = 1e-12
"""Differences of J below this are rounding: no reason to move, and no decrease."""


@dataclass(frozen=True)
class PolicyFamily:
    """G policies of one MDP, with what each of them visits and earns."""

    mdp: TabularMDP
    policies: Float[np.ndarray, "G S A"]
    state_visitation: Float[np.ndarray, "G S"]
    visitation: Float[np.ndarray, "G S A"]
    performance: Float[np.ndarray, " G"]

    @classmethod
    def of(cls, mdp: TabularMDP, policies: ArrayLike) -> "PolicyFamily":
        """Evaluate G policies at once: μ = d·π, J = E_μ r."""
        checked = probabilities("The policies", policies, (len(np.asarray(policies)), *mdp.r.shape))
        checked[:, mdp.is_terminal] = 1 / mdp.n_actions
        d = _state_visitations(mdp, checked)
        mu = d[..., None] * checked
        return cls(mdp, checked, d, mu, np.einsum("gsa,sa->g", mu, mdp.r))

    @property
    def best(self) -> float:
        """max J over the family."""
        return float(self.performance.max())


@dataclass(frozen=True)
class DataPolicy:
    """The policy π an update starts from, with its exact d, μ, A and J."""

    policy: Float[np.ndarray, "S A"]
    state_visitation: Float[np.ndarray, " S"]
    visitation: Float[np.ndarray, "S A"]
    advantage: Float[np.ndarray, "S A"]
    performance: float

    @classmethod
    def of(cls, mdp: TabularMDP, policy: ArrayLike) -> "DataPolicy":
        """Evaluate π."""
        checked = mdp.policy(policy)
        d, mu = mdp.visitation(checked)
        values = mdp.values(checked)
        return cls(checked, d, mu, values.A, values.J)


@dataclass(frozen=True)
class Candidates:
    """The members of a family as candidates π' to follow π, and how far each is from it."""

    family: PolicyFamily
    data: DataPolicy

    @cached_property
    def expected_advantage(self) -> Float[np.ndarray, "G S"]:
        """h(s) = E_{a~π'(·|s)} A^π(s,a)."""
        return np.einsum("gsa,sa->gs", self.family.policies, self.data.advantage)

    @cached_property
    def largest_advantage(self) -> Float[np.ndarray, " G"]:
        """ε = max_s |h(s)|."""
        return np.abs(self.expected_advantage).max(axis=1)

    @cached_property
    def action_change(self) -> Float[np.ndarray, " G"]:
        """E_d‖π' − π‖₁."""
        difference = np.abs(self.family.policies - self.data.policy)
        return np.einsum("gsa,s->g", difference, self.data.state_visitation)

    @cached_property
    def state_change(self) -> Float[np.ndarray, " G"]:
        """‖d' − d‖₁."""
        return np.abs(self.family.state_visitation - self.data.state_visitation).sum(axis=1)

    @cached_property
    def visitation_kl(self) -> Float[np.ndarray, " G"]:
        """KL(μ'‖μ), infinite where π' visits what π does not."""
        new = self.family.visitation.reshape(len(self.family.policies), -1)
        kl = kl_divergence(new, self.data.visitation.ravel())
        return np.maximum(kl, 0.0)  # rounding must not reach a square root

    def action_kl(self, direction: Direction) -> Float[np.ndarray, " G"]:
        """E_d KL(π'‖π) for `new_old`, E_d KL(π‖π') for `old_new`."""
        new, old = self.family.policies, self.data.policy
        kl = kl_divergence(new, old) if direction == "new_old" else kl_divergence(old, new)
        return expectation(self.data.state_visitation, kl)


Score = Callable[[Candidates], Float[np.ndarray, " G"]]
"""What an update maximises over the candidates π'. At π' = π it is J(π)."""
Update = Callable[[Candidates], Float[np.ndarray, "S A"]]
"""The next policy."""
Problem = tuple[PolicyFamily, Float[np.ndarray, "S A"]]
"""A family to search and the policy to start from."""


@dataclass(frozen=True)
class ImprovementPath:
    """The policies π_0 … π_I that an update went through, and their exact J."""

    policies: Float[np.ndarray, "I1 S A"]
    performance: Float[np.ndarray, " I1"]
    best: float
    """max J over the family."""

    @property
    def decreases(self) -> int:
        """How many updates made the policy worse."""
        return int(np.sum(np.diff(self.performance) < -ROUNDING))

    @property
    def worst_step(self) -> float:
        """The largest loss of J in one update, as a number ≤ 0."""
        return float(np.diff(self.performance).min(initial=0.0))

    def near_best(self, share: float = 0.99) -> Bool[np.ndarray, " I1"]:
        """Where J falls short of the best by at most the rest, (1 − share)·|best|."""
        return self.performance >= self.best - (1 - share) * abs(self.best)

    def iterations_to(self, share: float = 0.99) -> int | None:
        """Updates until J first reaches this share of the best; None if it never does."""
        reached = np.flatnonzero(self.near_best(share))
        return int(reached[0]) if len(reached) else None


def improve(
    family: PolicyFamily, update: Update, start: Float[np.ndarray, "S A"], iterations: int
) -> ImprovementPath:
    """Apply an update over and over, each time from an exact evaluation of the policy it led to."""
    path = [DataPolicy.of(family.mdp, start)]
    # Most paths end in a fixed point or in a cycle, which need not be computed again.
    successors: dict[bytes, DataPolicy] = {}
    for _ in range(iterations):
        data = path[-1]
        key = data.policy.tobytes()
        if key not in successors:
            successors[key] = DataPolicy.of(family.mdp, update(Candidates(family, data)))
        path.append(successors[key])
    policies, performance = zip(*((data.policy, data.performance) for data in path))
    return ImprovementPath(np.stack(policies), np.array(performance), family.best)


def maximise(score: Score) -> Update:
    """argmax_π' score(π'|π) over the family; of equally good members the closest to π, and first of all π."""

    def update(candidates: Candidates) -> Float[np.ndarray, "S A"]:
        scores = score(candidates)
        if scores.max() <= candidates.data.performance + ROUNDING:
            return candidates.data.policy
        best = np.flatnonzero(scores >= scores.max() - ROUNDING)
        members = candidates.family.policies[best]
        change = np.abs(members - candidates.data.policy).sum(axis=(1, 2))
        return members[np.argmin(change)]

    return update


def conservative_policy_iteration(candidates: Candidates) -> Float[np.ndarray, "S A"]:
    """π_{i+1} = (1−α)π + απ⁺ with the greedy π⁺ = argmax L, and the α that is guaranteed the most.

    J(π_{i+1}) − J(π) ≥ α𝔸 − 2α²γε/(1−γ), greatest at α = min(1, (1−γ)𝔸/(4γε)),    𝔸 = L(π⁺) − J(π)

    (Kakade and Langford 2002). Mixing two policies mixes the probabilities that states share: the mixture
    shares them too, though it falls between the members of the grid.
    """
    family, data = candidates.family, candidates.data
    scores = surrogate(candidates)
    greedy = int(np.argmax(scores))
    gain = scores[greedy] - data.performance
    if gain <= ROUNDING:
        return data.policy
    full_step = 4 * family.mdp.gamma * candidates.largest_advantage[greedy]
    step = min(1.0, (1 - family.mdp.gamma) * gain / full_step) if full_step > 0 else 1.0
    return (1 - step) * data.policy + step * family.policies[greedy]


def surrogate(candidates: Candidates) -> Float[np.ndarray, " G"]:
    """L(π'|π) = J(π) + E_d[h]: the advantage of π', on the states of π."""
    return candidates.data.performance + candidates.expected_advantage @ candidates.data.state_visitation


def trust_region(
    candidates: Candidates, radius: float, direction: Direction = "new_old"
) -> Float[np.ndarray, " G"]:
    """TRPO: L where E_d KL ≤ δ, −∞ elsewhere. The paper has KL(π'‖π), `new_old`; TRPO itself KL(π‖π')."""
    return np.where(candidates.action_kl(direction) <= radius, surrogate(candidates), -np.inf)


def clipped_surrogate(candidates: Candidates, clip_range: float) -> Float[np.ndarray, " G"]:
    """PPO: L_clip = J(π) + E_μ[min(κA, clip(κ, 1−ε, 1+ε)A)] with κ = π'/π; never above L.

    Written with π' = κπ, so that an action without support in π keeps the limit it has as π → 0.
    """
    new, data = candidates.family.policies, candidates.data
    clipped = np.clip(new, (1 - clip_range) * data.policy, (1 + clip_range) * data.policy)
    gain = np.minimum(new * data.advantage, clipped * data.advantage)
    return data.performance + np.einsum("gsa,s->g", gain, data.state_visitation)


def state_bound(candidates: Candidates) -> Float[np.ndarray, " G"]:
    """J(π') ≥ L − ε‖d' − d‖₁ (`eq:lower_bound_perf` of the paper)."""
    return surrogate(candidates) - candidates.largest_advantage * candidates.state_change


def kl_bound(candidates: Candidates) -> Float[np.ndarray, " G"]:
    """J(π') ≥ L − ε√(2 KL(μ'‖μ)): `state_bound` after Pinsker's inequality, and the origin of PPO-DICE."""
    distance = np.sqrt(2 * candidates.visitation_kl)
    return surrogate(candidates) - _penalty(candidates.largest_advantage, distance)


def action_bound(candidates: Candidates) -> Float[np.ndarray, " G"]:
    """J(π') ≥ L − ε·γ/(1−γ)·E_d‖π' − π‖₁: action probabilities alone (`eq:bound_pol` of the paper)."""
    horizon = candidates.family.mdp.gamma / (1 - candidates.family.mdp.gamma)
    return surrogate(candidates) - candidates.largest_advantage * horizon * candidates.action_change


def ppo_dice(
    candidates: Candidates, weight: float, clip_range: float | None = 0.2
) -> Float[np.ndarray, " G"]:
    """L_clip − λ·KL(μ'‖μ), or L − λ·KL(μ'‖μ) without a clip range.

    It promises J(π_{i+1}) ≥ J(π) − ε²/(2λ) and no more: as ε√(2KL) ≤ λKL + ε²/(2λ), the score is at most
    J(π') + ε²/(2λ) by `kl_bound`, and where it is greatest it is at least J(π).
    """
    gain = surrogate(candidates) if clip_range is None else clipped_surrogate(candidates, clip_range)
    return gain - _penalty(weight, candidates.visitation_kl)


UPDATES: Mapping[str, Update] = {
    "greedy": maximise(surrogate),
    "CPI": conservative_policy_iteration,
    "TRPO (δ = .01)": maximise(partial(trust_region, radius=0.01)),
    "PPO-clip (ε = .2)": maximise(partial(clipped_surrogate, clip_range=0.2)),
    "bound: states": maximise(state_bound),
    "bound: KL": maximise(kl_bound),
    "bound: actions": maximise(action_bound),
    "PPO-DICE (λ = 1)": maximise(partial(ppo_dice, weight=1.0)),
    "PPO-DICE (λ = .1)": maximise(partial(ppo_dice, weight=0.1)),
    "PPO-DICE (λ = .01)": maximise(partial(ppo_dice, weight=0.01)),
}
"""The updates that the paper compares, and the greedy one for contrast, by the name they have in a figure."""


@dataclass(frozen=True)
class UpdateSummary:
    """What one update did on many problems."""

    update: str
    paths: int
    paths_with_decrease: int
    decreases: int
    """Steps that made the policy worse, in all paths."""
    worst_step: float
    """The largest loss of J in one step of any path, as a number ≤ 0."""
    reached: int
    """Paths that came within 1 % of the best of their family."""
    stayed: int
    """Paths that were there at the end."""
    median_iterations: float
    """Updates it took to come there; infinite if half of the paths never did."""


def compare(
    problems: Iterable[Problem],
    updates: Mapping[str, Update] = UPDATES,
    iterations: int = 60,
) -> list[UpdateSummary]:
    """Improve on every problem by every update, and summarise each update."""
    problems = list(problems)
    return [
        _summarise(name, [improve(family, update, start, iterations) for family, start in problems])
        for name, update in updates.items()
    ]


def shared_policies(
    observation: Int[np.ndarray, " S"], probability: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "G S 2"]:
    """All policies with two actions that see s only as `observation[s]`, P(action 1) taken from a grid."""
    n_observations = int(observation.max()) + 1
    choices = np.array(list(itertools.product(probability, repeat=n_observations)))[:, observation]
    return np.stack([1 - choices, choices], axis=-1)


def random_problems(
    count: int,
    observation: Int[np.ndarray, " S"],
    probability: Float[np.ndarray, " n"],
    branching: int = 2,
    gamma: float = 0.9,
) -> Iterator[Problem]:
    """Garnet MDPs with two actions whose states share observations, each with a random member to start from.

    On a coarse grid small steps are no steps, and the cautious updates stand still: `action_bound` first.
    """
    policies = shared_policies(observation, probability)
    for seed in range(count):
        start = np.random.default_rng([seed, 1]).integers(len(policies))  # a stream apart from the MDP's
        mdp = garnet(len(observation), 2, branching, gamma, seed)
        yield PolicyFamily.of(mdp, policies), policies[start]


def _summarise(name: str, paths: list[ImprovementPath]) -> UpdateSummary:
    iterations = [path.iterations_to() for path in paths]
    return UpdateSummary(
        update=name,
        paths=len(paths),
        paths_with_decrease=sum(path.decreases > 0 for path in paths),
        decreases=sum(path.decreases for path in paths),
        worst_step=min(path.worst_step for path in paths),
        reached=sum(count is not None for count in iterations),
        stayed=sum(bool(path.near_best()[-1]) for path in paths),
        median_iterations=float(np.median([np.inf if count is None else count for count in iterations])),
    )


def _state_visitations(mdp: TabularMDP, policies: Float[np.ndarray, "G S A"]) -> Float[np.ndarray, "G S"]:
    """d of every policy, by doubling as in `chains`, so that a state out of reach has exactly zero.

    d_{2n} = d_n + d_n (γP_π)ⁿ is the part of d = (1−γ) ρᵀ Σ (γP_π)ᵗ from the first 2n steps.
    """
    power = mdp.gamma * np.einsum("gsa,sat->gst", policies, mdp.P)
    d, n_terms = np.tile((1 - mdp.gamma) * mdp.rho, (len(policies), 1, 1)), 1
    while n_terms < mdp.n_states or mdp.gamma**n_terms > NEGLIGIBLE:
        d, power, n_terms = d + d @ power, power @ power, 2 * n_terms
    return d[:, 0]


def _penalty(
    weight: Float[np.ndarray, " G"] | float, distance: Float[np.ndarray, " G"]
) -> Float[np.ndarray, " G"]:
    """weight · distance with 0·∞ = 0: where the weight is zero, infinitely far is not too far."""
    with np.errstate(invalid="ignore"):
        return np.where(np.greater(weight, 0), weight * distance, 0.0)
