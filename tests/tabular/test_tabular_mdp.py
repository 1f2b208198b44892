import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from tabular_problems import problems

from ppo_dice import PPO
from ppo_dice.errors import UserError
from ppo_dice.tabular import TabularMDP, garnet, random_policy

GOOD = {
    "P": np.full((3, 2, 3), 1 / 3),
    "r": np.zeros((3, 2)),
    "rho": np.array([0.5, 0.5, 0.0]),
    "gamma": 0.9,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"P": np.full((3, 2, 3), 0.3)}, r"P\[0, 0\] must sum to one, but sums to 0.9"),
        (
            {"P": np.tile([-0.5, 0.5, 1.0], (3, 2, 1))},
            r"P must hold no negative probabilities, but holds -0.5",
        ),
        ({"P": np.full((3, 2, 2), 0.5)}, r"P must have the shape \(3, 2, 3\), but has \(3, 2, 2\)"),
        ({"P": np.full((3, 2, 3), np.nan)}, "P must hold finite numbers only, but holds nan"),
        ({"P": [[1.0], [2.0, 3.0]]}, "P must be an array of numbers"),
        ({"r": np.full((3, 2), np.inf)}, "r must hold finite numbers only, but holds inf"),
        ({"r": np.zeros(3)}, r"r must have a shape \(states, actions\), but has \(3,\)"),
        ({"rho": [0.5, 0.5]}, r"rho must have the shape \(3,\), but has \(2,\)"),
        ({"rho": [0.5, 0.4, 0.0]}, "rho must sum to one, but sums to 0.9"),
        ({"gamma": 1.0}, r"gamma must be in \[0, 1\), but is 1.0"),
        ({"gamma": -0.1}, r"gamma must be in \[0, 1\), but is -0.1"),
        ({"gamma": float("nan")}, r"gamma must be in \[0, 1\), but is nan"),
        ({"terminal": [3]}, "terminal must name states from 0 to 2, but names 3"),
        ({"terminal": [-1]}, "terminal must name states from 0 to 2, but names -1"),
        ({"terminal": [0]}, "rho must be zero in terminal states"),
    ],
)
def test_a_bad_model_is_refused_in_one_sentence(changes, message):
    with pytest.raises(UserError, match=message):
        TabularMDP(**(GOOD | changes))


def test_bad_policies_chains_and_starts_are_refused_in_one_sentence():
    mdp = TabularMDP(**GOOD, terminal=[2])
    uniform = np.full((3, 2), 0.5)
    for pi, message in (
        (np.full((2, 2), 0.5), r"The policy must have the shape \(3, 2\)"),
        (np.full((3, 2), 0.6), r"The policy\[0\] must sum to one, but sums to 1.2"),
        (np.tile([1.5, -0.5], (3, 1)), "The policy must hold no negative"),
    ):
        with pytest.raises(UserError, match=message):
            mdp.visitation(pi)
    with pytest.raises(UserError, match="There is no chain 'naive'; known are: absorbing, restart"):
        mdp.chain("naive")
    with pytest.raises(UserError, match="visits no terminal state, so initial must be zero there"):
        mdp.visitation(uniform, "restart", initial=[0, 0, 1])
    with pytest.raises(UserError, match="initial must sum to one"):
        mdp.visitation(uniform, initial=[1, 1, 1])
    with pytest.raises(UserError, match="There is no divergence 'nothing'"):
        mdp.divergence(uniform, uniform, "nothing")


def test_the_model_is_a_read_only_copy_in_float64():
    P = np.full((3, 2, 3), 1 / 3, np.float32)
    mdp = TabularMDP(P, GOOD["r"], GOOD["rho"], 0.9, terminal=[2])
    for array in (mdp.P, mdp.r, mdp.rho, mdp.is_terminal):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    np.testing.assert_allclose(mdp.P.sum(-1), 1, atol=1e-15)  # float32's rounding is normalised away
    P[:] = 0
    assert mdp.P[0, 0, 0] == pytest.approx(1 / 3, abs=1e-7)


@settings(max_examples=300)
@given(problems())
def test_visitation_is_the_linear_solve_and_the_geometric_sum(problem):
    mdp, pi = problem.mdp, problem.old
    d, mu = mdp.visitation(pi, **problem.chain)
    chain = mdp.chain(problem.chain["chain"], problem.chain.get("initial"))
    P = np.einsum("sa,sat->st", mdp.policy(pi), chain.transition)
    solved = (1 - mdp.gamma) * np.linalg.solve(np.eye(len(d)) - mdp.gamma * P.T, chain.initial)
    np.testing.assert_allclose(d, solved, atol=1e-12)
    summed, share = np.zeros(len(d)), chain.initial * (1 - mdp.gamma)
    for _ in range(4000):
        summed, share = summed + share, mdp.gamma * share @ P
    np.testing.assert_allclose(d, summed, atol=1e-12)
    np.testing.assert_allclose(mu.sum(1), d, atol=1e-15)
    assert d.min() >= 0
    assert d.sum() == pytest.approx(1, abs=1e-14)


def corridor(length, gamma):
    """0 → 1 → … → `length`, which is terminal; both actions do the same."""
    P = np.zeros((length + 1, 2, length + 1))
    P[np.arange(length), :, np.arange(1, length + 1)] = 1
    P[length, :, 0] = 1  # what a model says of the end does not matter
    return TabularMDP(P, np.ones((length + 1, 2)), np.eye(length + 1)[0], gamma, [length])


def test_what_follows_the_end_of_an_episode_by_hand():
    # Episodes of H = 3 steps, γ = .5; π is uniform everywhere.
    mdp, pi, gamma, length = corridor(3, 0.5), np.full((4, 2), 0.5), 0.5, 3
    k = np.arange(length)
    visited = mdp.stationary(pi)
    np.testing.assert_allclose(visited, [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-15)
    # absorbing from ρ: (1−γ)γᵏ, and γᴴ for the end.
    d = mdp.visitation(pi).d
    np.testing.assert_allclose(d, [*((1 - gamma) * gamma**k), gamma**length], atol=1e-15)
    # absorbing from all visited states: 1 − γᵏ⁺¹, and γ(1−γᴴ)/(1−γ) for the end, over H.
    d = mdp.visitation(pi, initial=visited).d
    end = gamma * (1 - gamma**length) / (1 - gamma)
    np.testing.assert_allclose(d, np.array([*(1 - gamma ** (k + 1)), end]) / length, atol=1e-15)
    # restart from ρ: the same three states again and again; from all visited states: these for ever.
    d = mdp.visitation(pi, "restart").d
    expected = (1 - gamma) * gamma**k / (1 - gamma**length)
    np.testing.assert_allclose(d, [*expected, 0], atol=1e-15)
    d = mdp.visitation(pi, "restart", initial=visited).d
    np.testing.assert_allclose(d, visited, atol=1e-15)
    # Rewards of 1 until the end, and none after it.
    np.testing.assert_allclose(mdp.values(pi).V, [1.75, 1.5, 1, 0], atol=1e-15)


def test_a_state_far_away_is_visited_and_one_out_of_reach_exactly_never():
    mdp = corridor(40, 0.1)
    d = mdp.visitation(np.full((41, 2), 0.5), initial=np.eye(41)[20]).d
    assert (d[:20] == 0).all()
    np.testing.assert_allclose(d[20:40], 0.9 * 0.1 ** np.arange(20.0), rtol=1e-13)
    d = mdp.visitation(np.full((41, 2), 0.5)).d
    np.testing.assert_allclose(d[:40], 0.9 * 0.1 ** np.arange(40.0), rtol=1e-13)  # down to 1e-39


def test_no_one_acts_in_a_terminal_state_so_policies_cannot_differ_there():
    mdp = corridor(3, 0.5)
    old, new = np.full((4, 2), 0.5), np.full((4, 2), 0.5)
    new[3] = [1, 0]
    assert mdp.divergence(new, old, "kl") == 0
    np.testing.assert_allclose(mdp.visitation(new).mu[3], mdp.visitation(new).d[3] / 2)


@settings(max_examples=200)
@given(problems())
def test_the_restart_chain_is_consistent_from_all_visited_states_and_not_from_the_first(problem):
    mdp, pi = problem.mdp, problem.old
    visited = mdp.stationary(pi)
    assert visited.sum() == pytest.approx(1, abs=1e-12)
    d = mdp.visitation(pi, "restart", initial=visited).d
    np.testing.assert_allclose(d, visited, atol=1e-9)
    assert (visited[mdp.is_terminal] == 0).all()
    if np.abs(mdp.rho - visited).max() > 0.01 and mdp.gamma < 0.9:
        from_rho = mdp.visitation(pi, "restart").d
        assert np.abs(from_rho - visited).max() > 1e-5


def test_the_long_run_of_a_periodic_chain_and_of_one_that_falls_apart():
    flip = np.zeros((2, 1, 2))
    flip[0, 0, 1] = flip[1, 0, 0] = 1
    pi = np.ones((2, 1))
    np.testing.assert_allclose(TabularMDP(flip, [[0], [0]], [1, 0], 0.9).stationary(pi), [0.5, 0.5])
    apart = np.eye(2)[:, None]
    np.testing.assert_allclose(TabularMDP(apart, [[0], [0]], [0.3, 0.7], 0.9).stationary(pi), [0.3, 0.7])


@settings(max_examples=300)
@given(problems())
def test_values_satisfy_bellman_and_the_performance_difference_lemma(problem):
    mdp = problem.mdp
    new, old = mdp.policy(problem.new), mdp.policy(problem.old)
    V, Q, A, J = mdp.values(old)
    np.testing.assert_allclose(Q, mdp.r + mdp.gamma * mdp.P @ V, atol=1e-9)
    np.testing.assert_allclose((old * Q).sum(1), V, atol=1e-12)
    np.testing.assert_allclose((old * A).sum(1), 0, atol=1e-9)
    assert pytest.approx((mdp.visitation(old).mu * mdp.r).sum(), abs=1e-9) == J
    # J(π') − J(π) = E_{μ'}[A^π]
    gain = (mdp.visitation(new).mu * A).sum()
    np.testing.assert_allclose(mdp.values(new).J - J, gain, atol=1e-9)
    assert (V[mdp.is_terminal] == 0).all()


def test_it_is_a_gymnasium_environment():
    mdp = garnet(5, 3, 2, 0.9, seed=0, n_terminal=1)
    check_env(mdp, skip_render_check=True)
    first = [mdp.reset(seed=4)[0], *(mdp.step(1)[0] for _ in range(2))]
    assert first == [mdp.reset(seed=4)[0], *(mdp.step(1)[0] for _ in range(2))]
    mdp.reset(seed=4)
    for action in (-1, 3):
        with pytest.raises(UserError, match=f"An action is a number from 0 to 2, but is {action}"):
            mdp.step(action)
    other = mdp.copy()
    with pytest.raises(UserError, match="Call reset before the first step"):
        other.step(0)
    np.testing.assert_array_equal(other.P, mdp.P)


def test_the_environment_draws_from_the_model_and_ends_in_terminal_states():
    mdp = garnet(4, 2, 3, 0.9, seed=2, n_terminal=1)
    counts, starts = np.zeros(mdp.P.shape), np.zeros(4)
    state = mdp.reset(seed=0)[0]
    for step in range(20_000):
        action = step % 2
        after, reward, terminated, truncated, _ = mdp.step(action)
        assert (reward, terminated, truncated) == (mdp.r[state, action], after == 3, False)
        counts[state, action, after] += 1
        if terminated:
            with pytest.raises(UserError, match="after the end of an episode"):
                mdp.step(0)
            after = mdp.reset()[0]
            starts[after] += 1
        state = after
    visited = counts.sum(-1, keepdims=True)[:3]
    assert visited.min() > 500
    standard_error = np.sqrt(0.25 / visited)
    assert (np.abs(counts[:3] / visited - mdp.P[:3]) < 5 * standard_error).all()
    np.testing.assert_allclose(starts / starts.sum(), mdp.rho, atol=5 * np.sqrt(0.25 / starts.sum()))


def test_ppo_learns_on_it():
    # Staying pays where the state is 0 and going where it is 1; the state flips at random.
    mdp = TabularMDP(np.full((2, 2, 2), 0.5), np.eye(2), [0.5, 0.5], 0.5)
    make = lambda: gymnasium.wrappers.TimeLimit(mdp.copy(), 20)
    agent = PPO(make, n_envs=4, n_steps=64, n_minibatches=4, learning_rate=3e-3, workers=0)
    agent.learn(256 * 12)
    learned = [int(agent.predict(np.int64(state), deterministic=True)[0]) for state in range(2)]
    assert learned == [0, 1]


def test_random_policies_are_policies():
    mdp = garnet(5, 3, 2, 0.9, seed=0)
    np.testing.assert_allclose(random_policy(mdp, 1).sum(1), 1)
    assert (random_policy(mdp, 1) != random_policy(mdp, 2)).any()
