from functools import partial

import numpy as np
import pytest

from ppo_dice.tabular.bounds import performance_bounds
from ppo_dice.tabular.examples import aliased_ledge, aliased_ledge_policy, garnet
from ppo_dice.tabular.improvement import (
    UPDATES,
    Candidates,
    DataPolicy,
    ImprovementPath,
    PolicyFamily,
    action_bound,
    clipped_surrogate,
    compare,
    conservative_policy_iteration,
    improve,
    kl_bound,
    maximise,
    ppo_dice,
    random_problems,
    shared_policies,
    state_bound,
    surrogate,
    trust_region,
)
from ppo_dice.tabular.mdp import TabularMDP

LOWER_BOUNDS = {"states": state_bound, "KL": kl_bound, "actions": action_bound}
SCORES = {
    "surrogate": surrogate,
    "trust region": partial(trust_region, radius=0.01),
    "trust region, old first": partial(trust_region, radius=0.01, direction="old_new"),
    "clipped": partial(clipped_surrogate, clip_range=0.2),
    "PPO-DICE": partial(ppo_dice, weight=0.1),
    "PPO-DICE unclipped": partial(ppo_dice, weight=0.1, clip_range=None),
    **LOWER_BOUNDS,
}
ONE_PARAMETER = np.zeros(6, int), np.linspace(0.01, 0.99, 201)
TWO_PARAMETERS = np.arange(6) % 2, np.linspace(0.02, 0.98, 15)
FREE = np.arange(3), np.linspace(0.02, 0.98, 7)


@pytest.fixture(scope="module")
def ledge() -> PolicyFamily:
    return PolicyFamily.of(
        aliased_ledge(), np.stack([aliased_ledge_policy(p) for p in np.arange(1, 1000) / 1000])
    )


@pytest.fixture(scope="module")
def problems():
    """200 random MDPs of three kinds, the last of them deterministic."""
    return [
        *random_problems(80, *ONE_PARAMETER),
        *random_problems(60, *TWO_PARAMETERS, branching=3),
        *random_problems(60, *ONE_PARAMETER, branching=1, gamma=0.95),
    ]


def follow(ledge, update, iterations=60):
    return improve(ledge, update, aliased_ledge_policy(0.02), iterations)


def bandit(rewards, gamma=0.0):
    """One state, whose actions earn these rewards."""
    rewards = np.array([rewards], float)
    return TabularMDP(np.ones((*rewards.shape, 1)), rewards, np.ones(1), gamma)


def bandit_candidates(rewards, data, members):
    """π and its candidates, each given by its row of action probabilities."""
    mdp = bandit(rewards)
    return Candidates(
        PolicyFamily.of(mdp, np.array(members, float)[:, None]),
        DataPolicy.of(mdp, np.array([data], float)),
    )


def random_candidates(seed, *family):
    mdp = garnet(len(family[0]), 2, 2, 0.9, seed)
    policies = shared_policies(*family)
    index = np.random.default_rng(seed).integers(len(policies))
    return Candidates(PolicyFamily.of(mdp, policies), DataPolicy.of(mdp, policies[index])), index


# --- The aliased ledge ---------------------------------------------------------------------------------


def test_the_best_policy_of_the_ledge(ledge):
    assert ledge.best == pytest.approx(0.11882, abs=5e-6)
    assert ledge.policies[ledge.performance.argmax(), 0, 1] == pytest.approx(0.101)


@pytest.mark.parametrize(
    ("update", "decreases", "worst_step", "iterations"),
    [
        ("greedy", 30, -0.0870, None),
        ("TRPO (δ = .01)", 28, -0.0028, 3),
        ("PPO-clip (ε = .2)", 26, -0.00055, 8),
        ("PPO-DICE (λ = .01)", 32, -0.00044, 8),
        ("PPO-DICE (λ = .1)", 0, 0, 8),
        ("PPO-DICE (λ = 1)", 0, 0, 29),
        ("bound: states", 0, 0, 4),
        ("bound: KL", 0, 0, 11),
        ("bound: actions", 0, 0, 42),
        ("CPI", 0, 0, 46),
    ],
)
def test_updates_on_the_ledge(ledge, update, decreases, worst_step, iterations):
    path = follow(ledge, UPDATES[update])
    assert path.decreases == pytest.approx(decreases, abs=5 if decreases else 0)  # cycles hang on rounding
    assert path.worst_step == pytest.approx(worst_step, rel=0.05, abs=1e-12)
    assert path.iterations_to(0.99) == iterations


def test_trpo_oscillates_with_either_direction_of_its_kl(ledge):
    for direction in ("new_old", "old_new"):
        path = follow(ledge, maximise(partial(trust_region, radius=0.01, direction=direction)))
        assert path.decreases > 20
        assert path.worst_step < -5e-4


def test_a_bound_on_action_probabilities_needs_ten_times_as_many_updates(ledge):
    states = follow(ledge, maximise(state_bound)).iterations_to(0.99)
    actions = follow(ledge, maximise(action_bound)).iterations_to(0.99)
    assert actions > 10 * states


# --- What the scores are -------------------------------------------------------------------------------


def test_a_family_is_evaluated_as_its_mdp_evaluates_each_policy():
    mdp = garnet(6, 2, 3, 0.9, seed=0, n_terminal=1)
    family = PolicyFamily.of(mdp, shared_policies(np.arange(6) % 2, np.array([0.0, 0.3, 1.0])))
    for g, policy in enumerate(family.policies):
        d, mu = mdp.visitation(policy)
        np.testing.assert_allclose(family.state_visitation[g], d, atol=1e-13)
        np.testing.assert_allclose(family.visitation[g], mu, atol=1e-13)
        np.testing.assert_array_equal(family.visitation[g] == 0, mu == 0)  # or a KL would be infinite
        assert family.performance[g] == pytest.approx(mdp.values(policy)[-1], abs=1e-13)


@pytest.mark.parametrize("seed", range(20))
def test_performance_difference_lemma(seed):
    candidates, index = random_candidates(seed, *TWO_PARAMETERS)
    gain = np.sum(candidates.family.state_visitation * candidates.expected_advantage, axis=1)
    np.testing.assert_allclose(candidates.data.performance + gain, candidates.family.performance, atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_of_the_data_policy_is_its_performance(name):
    candidates, index = random_candidates(3, *TWO_PARAMETERS)
    assert SCORES[name](candidates)[index] == pytest.approx(candidates.data.performance, abs=1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_the_scores_are_the_bounds_of_each_pair_of_policies(seed):
    candidates, index = random_candidates(seed, *TWO_PARAMETERS)
    scores = np.stack([score(candidates) for score in (surrogate, *LOWER_BOUNDS.values())])
    for g in (0, 17, 100, len(scores.T) - 1):
        bounds = performance_bounds(
            candidates.family.mdp, candidates.family.policies[g], candidates.data.policy
        )
        expected = [bounds.surrogate, bounds.by_states, bounds.by_kl, bounds.by_actions]
        np.testing.assert_allclose(scores[:, g], expected, atol=1e-12)
        assert candidates.visitation_kl[g] == pytest.approx(bounds.kl, abs=1e-12)


def test_the_lower_bounds_hold_for_every_candidate_and_are_ordered(problems):
    for family, start in problems:
        candidates = Candidates(family, DataPolicy.of(family.mdp, start))
        states, kl, actions = (bound(candidates) for bound in LOWER_BOUNDS.values())
        for looser, tighter in ((states, family.performance), (kl, states), (actions, states)):
            assert np.all(looser <= tighter + 1e-12)


def test_the_clipped_surrogate_is_its_definition_by_ratios_and_never_above_the_surrogate():
    candidates, index = random_candidates(5, *TWO_PARAMETERS)
    data = candidates.data
    for score, policy in zip(clipped_surrogate(candidates, 0.2), candidates.family.policies):
        ratio = policy / data.policy
        gain = np.minimum(ratio * data.advantage, np.clip(ratio, 0.8, 1.2) * data.advantage)
        assert score == pytest.approx(data.performance + np.sum(data.visitation * gain), abs=1e-12)
    assert np.all(clipped_surrogate(candidates, 0.2) <= surrogate(candidates) + 1e-12)


def test_the_clipped_surrogate_by_hand():
    # π = (½, ½), r = (0, 1): J = ½ and A = (−½, ½). For π' = (.2, .8), κ = (.4, 1.6) is clipped to (.8, 1.2):
    # L_clip = ½ + ½·.8·(−½) + ½·1.2·½ = .6. For π' = (.8, .2), κ = (1.6, .4) counts in full, L_clip = L = .2.
    candidates = bandit_candidates([0, 1], [0.5, 0.5], [[0.2, 0.8], [0.8, 0.2]])
    np.testing.assert_allclose(clipped_surrogate(candidates, 0.2), [0.6, 0.2])


def test_an_action_without_support_is_the_limit_of_rare_ones():
    members = [[0.5, 0.5], [1.0, 0.0]]
    for rewards in ([0, 1], [1, 0]):
        never = bandit_candidates(rewards, [1.0, 0.0], members)
        rarely = bandit_candidates(rewards, [1 - 1e-9, 1e-9], members)
        limit = clipped_surrogate(rarely, 0.2)
        np.testing.assert_allclose(clipped_surrogate(never, 0.2), limit, atol=1e-8)
    np.testing.assert_array_equal(never.visitation_kl, [np.inf, 0])
    np.testing.assert_array_equal(ppo_dice(never, weight=0.1), [-np.inf, 1])
    np.testing.assert_array_equal(ppo_dice(never, weight=0.0), clipped_surrogate(never, 0.2))


def test_no_divergence_of_visitations_leaves_a_policy_without_support_but_their_distance_does(ledge):
    policies = np.stack([aliased_ledge_policy(p) for p in np.arange(0, 1001) / 1000])
    family, start = PolicyFamily.of(ledge.mdp, policies), aliased_ledge_policy(0.0)
    for name in ("TRPO (δ = .01)", "bound: KL", "PPO-DICE (λ = .01)"):
        np.testing.assert_array_equal(improve(family, UPDATES[name], start, 3).policies[-1], start)
    assert improve(family, UPDATES["bound: states"], start, 20).iterations_to(0.99) == 5


def test_infinitely_far_is_not_too_far_where_nothing_can_be_lost():
    # Equal rewards: h = 0 and ε = 0, and the bound is J itself, though KL(μ'‖μ) is infinite.
    candidates = bandit_candidates([1, 1], [1.0, 0.0], [[0.5, 0.5]])
    np.testing.assert_array_equal(kl_bound(candidates), [1])


def test_the_trust_region_by_hand():
    # π = (½, ½) and π' = (¼, ¾):
    # KL(π'‖π) = ¼ log ½ + ¾ log 1.5 = .1308 and KL(π‖π') = ½ log 2 + ½ log ⅔ = .1438.
    candidates = bandit_candidates([0, 1], [0.5, 0.5], [[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_allclose(trust_region(candidates, 0.14), [0.75, 0.5])
    np.testing.assert_allclose(trust_region(candidates, 0.13), [-np.inf, 0.5])
    np.testing.assert_allclose(trust_region(candidates, 0.14, "old_new"), [-np.inf, 0.5])
    np.testing.assert_allclose(trust_region(candidates, 0.15, "old_new"), [0.75, 0.5])


# --- What the updates do -------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["bound: states", "bound: KL", "bound: actions", "CPI"])
def test_guaranteed_updates_never_degrade(problems, update):
    (summary,) = compare(problems, {update: UPDATES[update]}, iterations=8)
    assert summary.worst_step > -1e-12
    assert summary.decreases == 0


@pytest.mark.parametrize("update", ["greedy", "TRPO (δ = .01)", "PPO-clip (ε = .2)", "PPO-DICE (λ = .01)"])
def test_updates_without_a_guarantee_do_degrade(problems, update):
    (summary,) = compare(problems[::4], {update: UPDATES[update]}, iterations=12)
    assert summary.paths_with_decrease > 0.05 * summary.paths
    assert summary.worst_step < -1e-4


@pytest.mark.parametrize("clip_range", [0.2, None])
@pytest.mark.parametrize("weight", [0.01, 0.1])
def test_ppo_dice_loses_no_more_than_its_weight_allows(problems, weight, clip_range):
    # J(π_{i+1}) ≥ J(π_i) − ε²/(2λ), with the ε of the policy that was chosen.
    update = maximise(partial(ppo_dice, weight=weight, clip_range=clip_range))
    losses = []
    for family, start in problems[::5]:
        path = improve(family, update, start, 5)
        for policy, following, loss in zip(path.policies, path.policies[1:], -np.diff(path.performance)):
            data = DataPolicy.of(family.mdp, policy)
            largest = np.abs(np.sum(following * data.advantage, axis=1)).max()
            assert loss <= largest**2 / (2 * weight) + 1e-12
            losses.append(loss)
    assert max(losses) > 1e-4


@pytest.mark.parametrize("name", ["surrogate", "trust region", "trust region, old first", "clipped"])
def test_nothing_degrades_when_every_state_has_its_own_parameters(name):
    for family, start in random_problems(30, *FREE):
        assert improve(family, maximise(SCORES[name]), start, 10).decreases == 0


def test_conservative_policy_iteration_takes_the_step_with_the_best_guarantee():
    for seed in range(20):
        candidates, index = random_candidates(seed, *TWO_PARAMETERS)
        family, data = candidates.family, candidates.data
        greedy = np.argmax(surrogate(candidates))
        ideal = surrogate(candidates)[greedy] - data.performance
        epsilon = candidates.largest_advantage[greedy]
        following = conservative_policy_iteration(candidates)
        step = np.sum((following - data.policy) * (family.policies[greedy] - data.policy)) / np.sum(
            (family.policies[greedy] - data.policy) ** 2
        )
        np.testing.assert_allclose(
            following, data.policy + step * (family.policies[greedy] - data.policy), atol=1e-12
        )
        guarantees = [
            a * ideal - 2 * a**2 * 0.9 * epsilon / (1 - 0.9) for a in (step, 0.9 * step, 1.1 * step)
        ]
        assert guarantees[0] > max(guarantees[1:])
        gain = family.mdp.values(following)[-1] - data.performance
        assert gain >= guarantees[0] > 0


def test_conservative_policy_iteration_is_greedy_where_nothing_lies_ahead():
    candidates = bandit_candidates([0, 1], [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]])
    np.testing.assert_array_equal(conservative_policy_iteration(candidates), [[0.1, 0.9]])


@pytest.mark.parametrize("update", UPDATES)
def test_an_update_stays_where_there_is_nothing_to_gain(update):
    candidates = bandit_candidates([1, 1], [0.5, 0.5], [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    np.testing.assert_array_equal(UPDATES[update](candidates), [[0.5, 0.5]])


def test_an_update_stays_where_every_member_is_worse():
    candidates = bandit_candidates([0, 1], [0.5, 0.5], [[0.9, 0.1], [0.8, 0.2]])
    np.testing.assert_array_equal(maximise(surrogate)(candidates), [[0.5, 0.5]])
    np.testing.assert_array_equal(conservative_policy_iteration(candidates), [[0.5, 0.5]])


def test_of_equally_good_members_the_closest_is_taken():
    candidates = bandit_candidates([0, 1], [0.5, 0.5], [[0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.5, 0.5]])
    update = maximise(lambda candidates: np.array([2.0, 2.0, 2.0, 0.5]))
    np.testing.assert_array_equal(update(candidates), [[0.3, 0.7]])


def test_a_path_is_the_plain_loop(ledge):
    update = UPDATES["TRPO (δ = .01)"]
    path, policy = follow(ledge, update, 25), aliased_ledge_policy(0.02)
    for recorded, performance in zip(path.policies, path.performance):
        np.testing.assert_array_equal(recorded, policy)
        assert performance == ledge.mdp.values(policy)[-1]
        policy = update(Candidates(ledge, DataPolicy.of(ledge.mdp, policy)))


# --- Summaries and families ----------------------------------------------------------------------------


def path_of(performance, best):
    return ImprovementPath(np.zeros((len(performance), 1, 2)), np.array(performance), best)


def test_summaries_of_a_path():
    path = path_of([0.0, 1.0, 0.5, 2.0, 1.9], best=2.0)
    assert (path.decreases, path.worst_step, path.iterations_to(0.99)) == (2, -0.5, 3)
    assert path_of([0.0, 1.0], best=2.0).iterations_to(0.99) is None
    assert path_of([-2.0, -1.005], best=-1.0).iterations_to(0.99) == 1
    assert path_of([1.0], best=2.0).worst_step == 0


def test_rounding_is_no_decrease():
    assert path_of([1.0, 1.0 - 1e-15, 1.0], best=1.0).decreases == 0


def test_compare_summarises_every_update(ledge):
    start, best = aliased_ledge_policy(0.02), ledge.policies[ledge.performance.argmax()]
    updates = {name: UPDATES[name] for name in ("greedy", "bound: states")}
    greedy, states = compare([(ledge, start), (ledge, best)], updates, iterations=10)
    assert (greedy.update, greedy.paths, greedy.paths_with_decrease) == ("greedy", 2, 2)
    assert greedy.worst_step == pytest.approx(0.0200 - 0.1188, abs=1e-4)  # from the best to always going
    assert (greedy.reached, greedy.stayed, greedy.median_iterations) == (1, 0, np.inf)
    assert (states.decreases, states.reached, states.stayed, states.median_iterations) == (0, 2, 2, 2)


def test_policies_share_what_they_cannot_tell_apart():
    policies = shared_policies(np.array([0, 1, 0]), np.array([0.1, 0.6]))
    np.testing.assert_allclose(
        policies[:, :, 1], [[0.1, 0.1, 0.1], [0.1, 0.6, 0.1], [0.6, 0.1, 0.6], [0.6, 0.6, 0.6]]
    )
    np.testing.assert_allclose(policies.sum(axis=2), 1)


def test_random_problems_depend_on_their_number_alone():
    first, second = list(random_problems(2, *FREE)), list(random_problems(3, *FREE))
    for (family, start), (again, start_again) in zip(first, second):
        np.testing.assert_array_equal(family.performance, again.performance)
        np.testing.assert_array_equal(start, start_again)
    assert not np.array_equal(first[0][0].performance, first[1][0].performance)
