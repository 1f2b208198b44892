"""A sampled rollout is what an environment would give, and its states are where theory says."""

import jax
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from ppo_dice.envs.gymnasium_backend import GymnasiumEnvironments
from ppo_dice.errors import UserError
from ppo_dice.rollout import collect, start
from ppo_dice.tabular import garnet, random_policy

LIMIT = 6
MDP = garnet(6, 3, 3, 0.8, seed=3, n_terminal=2)
PI = random_policy(MDP, 1)


def collected_rollout(steps, n_envs):
    envs = GymnasiumEnvironments(lambda: TimeLimit(MDP.copy(), LIMIT), list(range(n_envs)))
    rng = np.random.default_rng(0)

    def choose(obs, t):
        states = obs.argmax(-1)
        return np.array([[[rng.choice(3, p=PI[s])] for s in row] for row in states], np.int32)

    return jax.tree.map(lambda leaf: leaf[0], collect(envs, start(envs), choose, steps, (0,)).rollout)


def sampled_rollout(steps, n_envs, seed=0):
    return MDP.sample(PI, steps, jax.random.key(seed), n_envs=n_envs, max_episode_steps=LIMIT)


@pytest.mark.parametrize("make", [collected_rollout, sampled_rollout])
def test_a_rollout_keeps_the_contract_of_environments(make):
    rollout = make(200, 3)
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in vars(rollout).items()} == {
        "obs": ((201, 3, 6), np.float32),
        "final_obs": ((200, 3, 6), np.float32),
        "action": ((200, 3, 1), np.int32),
        "reward": ((200, 3), np.float32),
        "terminated": ((200, 3), bool),
        "truncated": ((200, 3), bool),
        "elapsed": ((200, 3), np.int32),
    }
    ended, state, action = rollout.ended, rollout.obs.argmax(-1), rollout.action[..., 0]
    assert set(np.unique(rollout.obs)) == {0, 1}
    assert (rollout.obs.sum(-1) == 1).all()
    np.testing.assert_array_equal(rollout.final_obs.sum(-1), ended)
    after = np.where(ended, rollout.final_obs.argmax(-1), state[1:])
    assert (MDP.P[state[:-1], action, after] > 0).all()
    assert (MDP.rho[state[1:][ended]] > 0).all()
    np.testing.assert_array_equal(rollout.reward, MDP.r[state[:-1], action].astype(np.float32))
    np.testing.assert_array_equal(rollout.terminated, MDP.is_terminal[after])
    np.testing.assert_array_equal(rollout.truncated, rollout.elapsed == LIMIT - 1)
    np.testing.assert_array_equal(rollout.elapsed[0], 0)
    np.testing.assert_array_equal(rollout.elapsed[1:], np.where(ended, 0, rollout.elapsed + 1)[:-1])
    # All kinds of ends occur, also a termination on the time limit, which is both.
    assert rollout.terminated.any()
    assert (rollout.truncated & ~rollout.terminated).any()


def test_a_termination_on_the_time_limit_is_both():
    rollout = sampled_rollout(2000, 3)
    assert (rollout.terminated & rollout.truncated).any()


def test_the_discounted_states_of_first_episodes_are_the_visitation():
    rollout = MDP.sample(PI, 120, jax.random.key(1), n_envs=20_000)
    first = np.cumsum(rollout.ended, 0) - rollout.ended == 0
    discount = (1 - MDP.gamma) * MDP.gamma ** np.arange(120)[:, None, None] * first[..., None]
    per_env = (discount * rollout.obs[:-1]).sum(0)
    d, mu = MDP.visitation(PI)
    error = 5 * per_env.std(0) / np.sqrt(20_000) + 1e-9
    assert (np.abs(per_env.mean(0) - np.where(MDP.is_terminal, 0, d)) <= error).all()
    actions = np.eye(3)[rollout.action[..., 0]]
    pairs = np.einsum("tnk,tns,tna->sa", discount, rollout.obs[:-1], actions) / 20_000
    np.testing.assert_allclose(pairs[:4], mu[:4], atol=0.01)
    # What is missing is spent in the terminal states: γᴴ per episode of H steps, by the last state.
    ends = (discount * MDP.gamma / (1 - MDP.gamma) * rollout.final_obs).sum((0, 1)) / 20_000
    np.testing.assert_allclose(ends[4:], d[4:], atol=0.01)


def test_the_states_of_a_long_rollout_are_the_stationary_ones():
    rollout = MDP.sample(PI, 600, jax.random.key(2), n_envs=400)
    per_env = rollout.obs[100:].mean(0)
    error = 5 * per_env.std(0) / np.sqrt(400) + 1e-9
    assert (np.abs(per_env.mean(0) - MDP.stationary(PI)) <= error).all()


def test_the_key_decides_the_rollout():
    one, again, other = (sampled_rollout(50, 2, seed) for seed in (0, 0, 1))
    assert all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(again)))
    assert not np.array_equal(one.obs, other.obs)


def test_an_impossible_action_is_never_drawn():
    never = np.tile([0.0, 1.0, 0.0], (6, 1))
    assert (MDP.sample(never, 500, jax.random.key(0), n_envs=4).action == 1).all()


def test_a_rollout_of_nothing_is_refused():
    for sizes, name in (((0, 1, None), "steps"), ((1, 0, None), "n_envs"), ((1, 1, 0), "max_episode_steps")):
        steps, n_envs, limit = sizes
        with pytest.raises(UserError, match=f"{name} must be at least 1, but is 0"):
            MDP.sample(PI, steps, jax.random.key(0), n_envs=n_envs, max_episode_steps=limit)
