import numpy as np
import pytest
from gymnasium.spaces import Box

from ppo_dice import PPO
from ppo_dice.envs import environment_seeds, make_envs
from ppo_dice.errors import UserError
from ppo_dice.rollout import collect, start
from probes import Broken, Endless, Probe


class Counting(Probe):
    """Observation = steps so far; ends by termination after 3 steps; reward = 10 · steps + action."""

    observation_space = Box(0.0, 10.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.see(0.0), {}

    def step(self, action):
        self.steps += 1
        return self.see(self.steps), 10.0 * self.steps + int(action), self.steps == 3, False, {}


def test_the_rollout_holds_what_happened():
    envs = make_envs(Counting, environment_seeds(0, 4), workers=0)
    asked = []

    def choose(obs, t):
        asked.append(obs)
        return np.full((2, 2, 1), t % 2, np.int32) * np.arange(2)[:, None, None]  # seed 0 always 0

    collected = collect(envs, start(envs), choose, 5, (7, 8))
    rollout = collected.rollout
    assert rollout.obs.shape == (2, 6, 2, 1)
    np.testing.assert_array_equal(rollout.obs[0, :, 0, 0], [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(np.stack(asked, 1), rollout.obs[:, :-1])
    np.testing.assert_array_equal(rollout.elapsed[1, :, 0], [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(rollout.terminated[1, :, 1], [False, False, True, False, False])
    assert not rollout.truncated.any()
    np.testing.assert_array_equal(rollout.final_obs[0, :, 0, 0], [0, 0, 3, 0, 0])
    np.testing.assert_array_equal(rollout.reward[0, :, 0], [10, 20, 30, 10, 20])
    np.testing.assert_array_equal(rollout.reward[1, :, 0], [10, 21, 30, 11, 20])
    assert [(e.member, e.env, e.step, e.ret, e.length) for e in collected.episodes] == [
        (0, 0, 2, 60.0, 3),
        (0, 1, 2, 60.0, 3),
        (1, 0, 2, 61.0, 3),
        (1, 1, 2, 61.0, 3),
    ]
    # The next rollout goes on in the middle of the episode.
    later = collect(envs, collected.position, choose, 1, (7, 8))
    assert [e.ret for e in later.episodes] == [60.0, 60.0, 61.0, 61.0]
    assert later.rollout.elapsed.tolist() == [[[2, 2]], [[2, 2]]]


def test_a_rollout_stays_as_it_was_when_the_next_is_collected():
    envs = make_envs(Counting, environment_seeds(0, 1), workers=0)
    choose = lambda obs, t: np.zeros((1, 1, 1), np.int32)
    first = collect(envs, start(envs), choose, 4, (0,))
    before = first.rollout.obs.copy()
    collect(envs, first.position, choose, 4, (0,))
    np.testing.assert_array_equal(first.rollout.obs, before)


def test_a_number_that_is_not_finite_is_named(tmp_path):
    agent = PPO(Broken, seed=3, seeds=2, n_steps=64, n_minibatches=1, workers=0)
    # Step 101 is the 37th of the second rollout of 64.
    with pytest.raises(UserError, match=r"reward that is not finite \(nan\), to seed 3 at step 37 "):
        agent.learn(1024, out=tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").is_file()
    assert agent.population.iteration == 1


def test_a_number_that_is_not_finite_ends_an_evaluation():
    agent = PPO(Broken, seed=3, seeds=2, n_steps=64, n_minibatches=1, workers=0)
    with pytest.raises(UserError, match=r"a reward that is not finite \(nan\), to seed 3 after 101 steps"):
        agent.evaluate(1)


def test_a_time_limit_is_no_termination():
    envs = make_envs(lambda: Endless(limit=2), environment_seeds(0, 1), workers=0)
    rollout = collect(envs, start(envs), lambda obs, t: np.zeros((1, 1, 1), np.int32), 4, (0,)).rollout
    np.testing.assert_array_equal(rollout.truncated[0, :, 0], [False, True, False, True])
    assert not rollout.terminated.any()
