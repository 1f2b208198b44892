"""Stable-Baselines3's own tools with our agents: the real package, in the environment of the peers."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from ppo_dice import PPO, PPODice
from ppo_dice.envs import environment_seeds

TINY = {"n_envs": 2, "n_steps": 32, "n_minibatches": 2, "n_epochs": 1, "hidden_sizes": (8,)}
VECTOR = Box(-1, 1, (3,), np.float32)
OBSERVATIONS = {
    "vector": VECTOR,
    "discrete": Discrete(5, start=2),
    "multi-discrete": MultiDiscrete([2, 3]),
    "dict": Dict(b=VECTOR, a=Discrete(3), c=MultiDiscrete([2, 2])),
}
ACTIONS = {
    "continuous": Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 0.5], np.float32)),
    "discrete": Discrete(3, start=-1),
    "multi-discrete": MultiDiscrete([2, 4, 3]),
}


class Guess(gymnasium.Env[Any, Any]):
    """Pays for actions as its seed decides, and ends after a number of steps that its seed decides."""

    def __init__(self, observations: str = "vector", actions: str = "discrete") -> None:
        self.observation_space, self.action_space = OBSERVATIONS[observations], ACTIONS[actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 9))
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.left -= 1
        reward = float(self.np_random.normal() * np.mean(action))
        return self._observe(), reward, self.left == 0, False, {}

    def _observe(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()


class BeginsWith(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins its first episode from a seed of its own, as the environments of our `evaluate` do."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int | None) -> None:
        super().__init__(env)
        self._seed = seed

    def reset(self, **options: Any) -> Any:
        seed, self._seed = self._seed, None
        return self.env.reset(seed=seed, options=options.get("options"))


def fresh(env, algorithm=PPO, **settings):
    """An agent that has learned nothing: what it does depends on its seed and on what it sees."""
    return algorithm(env, backend="gymnasium", workers=0, **TINY, **settings)


def evaluation_seeds(agent, copies):
    return environment_seeds(agent.seeds[0], copies, segment=0, purpose="evaluate")


SPACES = [("vector", actions) for actions in ACTIONS] + [(name, "discrete") for name in OBSERVATIONS]


@pytest.mark.parametrize(("observations", "actions"), SPACES)
def test_every_space_gives_in_many_environments_what_our_evaluation_gives(observations, actions):
    make = lambda: Guess(observations, actions)
    agent = fresh(make)
    copies = [lambda seed=seed: Monitor(BeginsWith(make(), seed)) for seed in evaluation_seeds(agent, 4)]
    returns, lengths = evaluate_policy(agent, DummyVecEnv(copies), 4, return_episode_rewards=True)
    ours = agent.evaluate(4)
    # Theirs come in the order in which the episodes end.
    assert sorted(lengths) == sorted(ours.lengths[0])
    np.testing.assert_allclose(sorted(returns), sorted(ours.returns[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("observations", "actions"), SPACES)
def test_every_space_gives_in_one_plain_environment_what_a_loop_gives(observations, actions):
    agent = fresh(lambda: Guess(observations, actions))
    env = Guess(observations, actions)
    with pytest.warns(UserWarning, match="not wrapped with a ``Monitor``"):
        theirs = evaluate_policy(agent, BeginsWith(env, 3), 5, return_episode_rewards=True)
    returns, lengths = [], []
    for episode in range(5):
        observation, _ = env.reset(seed=3 if episode == 0 else None)
        rewards, over = [], False
        while not over:
            action, state = agent.predict(observation, deterministic=True)
            assert state is None
            observation, reward, over, _, _ = env.step(action)
            rewards.append(reward)
        returns.append(sum(rewards))
        lengths.append(len(rewards))
    assert theirs[1] == lengths
    np.testing.assert_allclose(theirs[0], returns, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("algorithm", "env_id"), [(PPODice, "CartPole-v1"), (PPO, "Pendulum-v1")])
def test_a_known_task_gives_what_our_evaluation_gives(algorithm, env_id):
    agent = fresh(env_id, algorithm)
    if algorithm is PPO:
        agent.learn(64)  # with statistics of what it has seen
    seeds = iter(evaluation_seeds(agent, 3))
    envs = make_vec_env(lambda: BeginsWith(gymnasium.make(env_id), next(seeds)), n_envs=3)
    mean, _ = evaluate_policy(agent, envs, n_eval_episodes=3)
    assert mean == pytest.approx(agent.evaluate(3).mean, rel=1e-3)


def test_one_plain_environment_gives_what_our_evaluation_in_it_gives():
    agent = PPO(gymnasium.make("CartPole-v1"), **TINY | {"n_envs": 1})
    (seed,) = evaluation_seeds(agent, 1)
    env = Monitor(BeginsWith(gymnasium.make("CartPole-v1"), seed))
    returns, lengths = evaluate_policy(agent, env, 3, return_episode_rewards=True)
    ours = agent.evaluate(3)
    assert (returns, lengths) == (ours.returns[0], ours.lengths[0])


def test_sampled_actions_and_more_environments_than_episodes():
    agent = fresh(lambda: Guess("dict", "multi-discrete"))
    envs = make_vec_env(lambda: Guess("dict", "multi-discrete"), n_envs=3, seed=0)
    returns, _ = evaluate_policy(agent, envs, 2, deterministic=False, return_episode_rewards=True)
    assert len(returns) == 2


def test_a_member_of_a_population_is_evaluated_alone():
    agent = fresh("CartPole-v1", seed=4, seeds=3)
    member = agent.member(5)
    seeds = iter(evaluation_seeds(member, 3))
    envs = make_vec_env(lambda: BeginsWith(gymnasium.make("CartPole-v1"), next(seeds)), n_envs=3)
    mean, _ = evaluate_policy(member, envs, n_eval_episodes=3)
    assert mean == pytest.approx(agent.evaluate(3).mean_by_seed[5])


def test_predict_takes_and_gives_what_theirs_does():
    agent = fresh("CartPole-v1")
    envs = make_vec_env("CartPole-v1", n_envs=3, seed=0)
    started = np.ones(3, bool)
    actions, state = agent.predict(envs.reset(), state=None, episode_start=started, deterministic=True)
    assert (actions.shape, state) == ((3,), None)
    observations, rewards, dones, _ = envs.step(actions)
    action, _ = agent.predict(observations[0], None, started[:1], True)
    assert envs.action_space.contains(action)
    assert isinstance(action, np.ndarray | np.integer)
