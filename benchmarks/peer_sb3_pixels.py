"""Contestant on Atari: PPO of Stable-Baselines3 with its own wrappers, settings as in ours_pixels.py."""

import resource
import sys
import time
import warnings
from functools import partial
from typing import Any

import ale_py
import gymnasium
import torch
from peer_sb3 import RolloutClock
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack
from turns import Numbers, take_turns


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    warnings.simplefilter("ignore")
    gymnasium.register_envs(ale_py)
    envs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=0), n_stack=4)
    model = PPO(
        "CnnPolicy",
        envs,
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        seed=0,
        device="cpu",
    )
    packages = ("stable-baselines3", "torch", "gymnasium", "ale-py")
    take_turns(partial(one_iteration, model, RolloutClock()), packages)


def one_iteration(model: Any, clock: RolloutClock) -> Numbers:
    began = time.perf_counter()
    model.learn(1024, callback=clock, reset_num_timesteps=False)
    ended = time.perf_counter()
    return {
        "steps": 1024,
        "seconds": ended - began,
        "collect": clock.collected_at - began,
        "learn": ended - clock.collected_at,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    main()
