"""Contestant: PPO of Stable-Baselines3, or of SBX, its JAX version, in the environment of the peers."""

import argparse
import importlib
import time
import warnings
from functools import partial
from typing import Any

import task
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from turns import Numbers, take_turns

PACKAGES = {
    "stable_baselines3": ("stable-baselines3", "torch", "gymnasium", "mujoco"),
    "sbx": ("sbx-rl", "stable-baselines3", "jax", "gymnasium", "mujoco"),
}


class RolloutClock(BaseCallback):
    """Notes when collection ended and the update began."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.collected_at = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", choices=PACKAGES, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    take_turns(partial(one_iteration, make_model(options.library), RolloutClock()), PACKAGES[options.library])


def make_model(library: str) -> Any:
    envs = VecNormalize(make_vec_env(task.ENV_ID, n_envs=1, seed=0))
    return importlib.import_module(library).PPO(
        "MlpPolicy",
        envs,
        n_steps=task.N_STEPS,
        batch_size=task.N_STEPS // task.N_MINIBATCHES,
        n_epochs=task.N_EPOCHS,
        seed=0,
        device="cpu",
    )


def one_iteration(model: Any, clock: RolloutClock) -> Numbers:
    began = time.perf_counter()
    model.learn(task.N_STEPS, callback=clock, reset_num_timesteps=False)
    ended = time.perf_counter()
    return {
        "steps": task.N_STEPS,
        "seconds": ended - began,
        "collect": clock.collected_at - began,
        "learn": ended - clock.collected_at,
    }


if __name__ == "__main__":
    main()
