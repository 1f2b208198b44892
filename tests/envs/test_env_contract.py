"""What every backend promises, on real environments."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from env_probes import Counter, Noise, equal, stream
from gymnasium.wrappers import TimeLimit

from ppo_dice.envs import Environments, environment_seeds, make_envs
from ppo_dice.errors import UserError

pytest.importorskip("envpool")

BACKENDS = ["envpool", "gymnasium"]
PROCESSES = [0, 2]


def actions(envs: Environments, value: float) -> np.ndarray:
    return np.full((envs.num_envs, *envs.spec.action_space.shape), value, np.float32)


@pytest.mark.parametrize("workers", PROCESSES)
def test_no_transition_of_the_stream_is_a_phantom(workers: int) -> None:
    envs = make_envs(Counter, [0, 1], env_kwargs={"length": 3}, workers=workers)
    obs = envs.reset()
    for step in range(1, 10):
        before, (obs, reward, terminated, truncated, final_obs) = obs, envs.step(actions(envs, 0.3))[:5]
        episode, steps = divmod(step - 1, 3)
        np.testing.assert_array_equal(before, [[episode, steps]] * 2)
        np.testing.assert_array_equal(final_obs, [[episode, steps + 1]] * 2)
        np.testing.assert_array_equal(obs, [divmod(step, 3)] * 2)
        np.testing.assert_array_equal(reward, [steps + 1.0] * 2)
        np.testing.assert_array_equal(terminated, [steps == 2] * 2)
        assert not truncated.any()
    envs.close()


def test_an_episode_that_ends_leaves_the_other_copies_alone() -> None:
    envs = make_envs("CartPole-v1", environment_seeds(0, 4), backend="envpool")
    envs.reset()
    ended = 0
    for _ in range(200):
        step = envs.step(np.random.default_rng(ended).integers(0, 2, (4, 1), dtype=np.int32))
        done = step.terminated | step.truncated
        np.testing.assert_array_equal(step.obs[~done], step.final_obs[~done])
        assert (np.abs(step.obs[done]) <= 0.05).all()  # CartPole starts within 0.05 of the origin
        assert (np.abs(step.final_obs[done]).max(axis=1) > 0.05).all()
        ended += int(done.sum())
    assert ended > 10


def test_envpools_transitions_follow_from_each_other_across_restarts() -> None:
    """The dynamics of CartPole, computed by Gymnasium from every observation, are the observed ones."""
    envs = make_envs("CartPole-v1", environment_seeds(3, 3), backend="envpool")
    model: Any = gymnasium.make("CartPole-v1").unwrapped
    model.reset()
    rng, obs, ended = np.random.default_rng(0), envs.reset(), 0
    for _ in range(150):
        chosen = rng.integers(0, 2, (3, 1), dtype=np.int32)
        step = envs.step(chosen)
        for copy in range(3):
            model.state = obs[copy].astype(np.float64)
            model.steps_beyond_terminated = None
            expected, *_ = model.step(int(chosen[copy, 0]))
            np.testing.assert_allclose(step.final_obs[copy], expected, atol=1e-5)
        obs, ended = step.obs, ended + int(step.terminated.sum())
    assert ended > 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_limit_is_no_termination(backend: str) -> None:
    envs = make_envs("Pendulum-v1", [0, 1], backend=backend, env_kwargs={"max_episode_steps": 5}, workers=0)
    assert envs.spec.max_episode_steps == 5
    envs.reset()
    for count in range(1, 16):
        step = envs.step(actions(envs, 0.0))
        assert not step.terminated.any()
        assert step.truncated.tolist() == [count % 5 == 0] * 2
        assert (step.obs == step.final_obs).all(axis=1).tolist() == [count % 5 != 0] * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("env_id", "push"), [("CartPole-v1", 1), ("InvertedPendulum-v5", 3.0)])
def test_a_termination_at_the_time_limit_is_kept(backend: str, env_id: str, push: float) -> None:
    falls_at, _ = first_end(env_id, backend, push, limit=None)
    assert first_end(env_id, backend, push, limit=falls_at) == (falls_at, (True, True))
    assert first_end(env_id, backend, push, limit=falls_at + 1) == (falls_at, (True, False))
    assert first_end(env_id, backend, push, limit=falls_at - 1) == (falls_at - 1, (False, True))


def first_end(env_id: str, backend: str, push: float, limit: int | None) -> tuple[int, tuple[bool, bool]]:
    env_kwargs = {} if limit is None else {"max_episode_steps": limit}
    envs = make_envs(env_id, [7], backend=backend, env_kwargs=env_kwargs)
    envs.reset()
    for count in range(1, 100):
        step = envs.step(np.full((1, 1), push, np.float32 if env_id.startswith("Inverted") else np.int32))
        if step.terminated[0] or step.truncated[0]:
            return count, (bool(step.terminated[0]), bool(step.truncated[0]))
    raise AssertionError("no episode ended")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("elsewhere")
def test_control_costs_see_the_action_that_is_applied(backend: str) -> None:
    rewards = []
    for force in (1.0, 5.0):
        envs = make_envs("HalfCheetah-v5", [11], backend=backend)
        envs.reset()
        raw = actions(envs, force)
        rewards.append([envs.step(raw).reward[0] for _ in range(10)])
        assert (raw == force).all()
    assert rewards[0] == rewards[1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env_id", ["Hopper-v5", "CartPole-v1", "Pendulum-v1"])
def test_equal_seeds_give_equal_streams_and_copies_are_independent(backend: str, env_id: str) -> None:
    def run(run_seed: int, copies: int = 3, segment: int = 0) -> list[np.ndarray]:
        seeds = environment_seeds(run_seed, copies, segment=segment)
        envs = make_envs(env_id, seeds, backend=backend, workers=0)
        said = stream(envs, 60)
        envs.close()
        return said

    first = run(0)
    assert equal(first, run(0))
    starts = [run(0)[0], run(1)[0], run(0, segment=1)[0]]
    assert len(np.unique(np.concatenate(starts), axis=0)) == 9
    np.testing.assert_array_equal(run(0, copies=5)[0][:3], first[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_adding_copies_changes_no_other_copy(backend: str) -> None:
    def run(copies: int) -> list[np.ndarray]:
        envs = make_envs("Hopper-v5", environment_seeds(0, copies), backend=backend, workers=0)
        said = [envs.reset()]
        for _ in range(100):
            said.extend(envs.step(actions(envs, 0.7))[:5])
        return [array[:2] for array in said]

    assert equal(run(2), run(4))


@pytest.mark.parametrize("backend", BACKENDS)
def test_reset_starts_over(backend: str) -> None:
    envs = make_envs("Hopper-v5", [4, 5], backend=backend, workers=0)
    assert equal(stream(envs, 40), stream(envs, 40))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_returned_stays_as_it_was(backend: str) -> None:
    envs = make_envs("CartPole-v1", [0, 1], backend=backend, workers=0)
    said = stream(envs, 30)
    copies = [array.copy() for array in said]
    stream(envs, 30, action_seed=1)
    assert equal(said, copies)


def test_dictionaries_of_envpool_become_one_vector() -> None:
    envs = make_envs("HopperHop-v1", [0, 1])
    assert envs.spec.backend == "envpool"
    assert envs.reset().shape == (2, 15)
    assert envs.step(actions(envs, 0.0)).final_obs.shape == (2, 15)


def test_time_limits_are_found_wherever_they_are() -> None:
    assert make_envs("Hopper-v5", [0], backend="gymnasium").spec.max_episode_steps == 1000
    assert make_envs("Hopper-v5", [0], backend="envpool").spec.max_episode_steps == 1000
    assert make_envs(lambda: TimeLimit(Counter(), 7), [0]).spec.max_episode_steps == 7
    assert make_envs(Counter(), [0]).spec.max_episode_steps is None
    assert make_envs("CliffWalking-v0", [0], backend="envpool").spec.max_episode_steps is None


def test_engines_are_recorded() -> None:
    assert make_envs("Hopper-v5", [0], backend="gymnasium").spec.engine.startswith("mujoco ")
    assert make_envs("CartPole-v1", [0], backend="gymnasium").spec.engine.startswith("Gymnasium ")
    assert "(EnvPool " in make_envs("Hopper-v5", [0], backend="envpool").spec.engine
    assert make_envs("CartPole-v1", [0], backend="envpool").spec.engine.startswith("EnvPool ")


def test_an_environment_object_is_one_copy_and_stays_open() -> None:
    class Closing(Noise):
        closed = False

        def close(self) -> None:
            self.closed = True

    env = Closing()
    envs = make_envs(env, [3])
    assert equal(stream(envs, 20), stream(make_envs(Noise, [3]), 20))
    envs.close()
    assert not env.closed


class Growing(Counter):
    """From the second step on, observes more than it declares."""

    def _observation(self) -> np.ndarray:
        return np.zeros(4 if self.steps > 1 else 2, np.float64)


@pytest.mark.parametrize("copies", [1, 2])
def test_an_observation_that_changes_its_shape_is_refused(copies: int) -> None:
    envs = make_envs(Growing, environment_seeds(0, copies), workers=0)
    envs.reset()
    envs.step(actions(envs, 0.0))
    with pytest.raises(
        UserError, match=r"Growing returned an observation of shape \(4,\), .* declares \(2,\)"
    ):
        envs.step(actions(envs, 0.0))
