"""EnvPool and Gymnasium compute the same transitions, though their MuJoCo differ (3.6 and 4.0).

Measured in float64 from equal states over 200 random steps: InvertedPendulum agrees to the last bit, Reacher
to 1e-15, Swimmer to 5e-15, HalfCheetah to 2e-13, Hopper to 3e-8. Free runs of up to 50 steps stay within 1e-7
in these and Walker2d, while Ant is off by 1e-3 after ten steps. EnvPool's rewards are float32.

The runs here span restarts after a time limit, so a phantom transition would show.
"""

from typing import Any

import gymnasium
import numpy as np
import pytest

from ppo_dice.envs import environment_seeds, make_envs

pytest.importorskip("envpool")
pytest.importorskip("mujoco")


SHORT = {"max_episode_steps": 13}


def inverted_pendulum(obs: np.ndarray) -> tuple[Any, Any]:
    return obs[:2], obs[2:]


def swimmer(obs: np.ndarray) -> tuple[Any, Any]:
    return np.concatenate([[0.0, 0.0], obs[:3]]), obs[3:]


def reacher(obs: np.ndarray) -> tuple[Any, Any]:
    angles = np.arctan2(obs[2:4], obs[:2])
    return np.concatenate([angles, obs[4:6]]), np.concatenate([obs[6:8], [0.0, 0.0]])


def half_cheetah(obs: np.ndarray) -> tuple[Any, Any]:
    return np.concatenate([[0.0], obs[:8]]), obs[8:]


# Our observations are float32, which is what limits the agreement here: velocities differ by their rounding.
@pytest.mark.parametrize(
    ("env_id", "state", "tolerance"),
    [
        ("InvertedPendulum-v5", inverted_pendulum, 1e-5),
        ("Swimmer-v5", swimmer, 1e-5),
        ("Reacher-v5", reacher, 1e-4),
        ("HalfCheetah-v5", half_cheetah, 1e-3),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_mujoco_tasks_make_the_same_transitions(env_id: str, state: Any, tolerance: float) -> None:
    envs = make_envs(env_id, environment_seeds(0, 1), backend="envpool", env_kwargs=SHORT)
    model: Any = gymnasium.make(env_id)
    model.reset(seed=0)
    rng, obs, restarts = np.random.default_rng(0), envs.reset(), 0
    for _ in range(50):
        action = rng.uniform(-1, 1, (1, *envs.spec.action_space.shape)).astype(np.float32)
        step = envs.step(action)
        model.unwrapped.set_state(*state(obs[0].astype(np.float64)))
        expected_obs, expected_reward, expected_terminated, _, _ = model.unwrapped.step(action[0])
        np.testing.assert_allclose(step.final_obs[0], expected_obs, rtol=tolerance, atol=tolerance)
        assert step.reward[0] == pytest.approx(expected_reward, abs=tolerance)
        assert step.terminated[0] == expected_terminated
        obs, restarts = step.obs, restarts + int(step.truncated[0])
    assert restarts > 0


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0", "MountainCar-v0"])
def test_classic_tasks_make_the_same_transitions(env_id: str) -> None:
    envs = make_envs(env_id, environment_seeds(1, 1), backend="envpool", env_kwargs=SHORT)
    model: Any = gymnasium.make(env_id).unwrapped
    model.reset(seed=0)
    rng, obs, restarts = np.random.default_rng(0), envs.reset(), 0
    for _ in range(50):
        if env_id == "MountainCar-v0":
            action = rng.integers(0, 3, (1, 1), dtype=np.int32)
            expected_action: Any = int(action[0, 0])
        else:
            action = rng.uniform(-1, 1, (1, 1)).astype(np.float32)
            expected_action = action[0]
        cosine_sine = env_id == "Pendulum-v1"
        model.state = [np.arctan2(obs[0, 1], obs[0, 0]), obs[0, 2]] if cosine_sine else obs[0].astype(float)
        step = envs.step(action)
        expected_obs, expected_reward, *_ = model.step(expected_action)
        np.testing.assert_allclose(step.final_obs[0], expected_obs, atol=1e-5)
        assert step.reward[0] == pytest.approx(float(expected_reward), abs=1e-4)
        obs, restarts = step.obs, restarts + int(step.truncated[0])
    assert restarts > 0
