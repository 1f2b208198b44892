"""Decide whether worker processes pay."""

import os
import time
from collections.abc import Mapping
from typing import Any

import gymnasium

from ppo_dice.envs.gymnasium_make import EnvLike, make_copy

# Measured on two cores with an environment that burns a known time: one lock-step of two workers costs about
# 85 µs more than its share of the work, whatever the number of copies. In one process and in two, 200 µs of
# work took 207 and 190 µs, 100 µs took 107 and 128, 400 µs took 410 and 300, 1.6 ms took 1.61 and 0.92.
_SECONDS_PER_LOCKSTEP = 45e-6
_SECONDS_PER_WORKER = 20e-6
_WORTHWHILE_SPEEDUP = 1.25  # starting a worker takes about 0.2 s, more where its libraries are heavy

_STEPS_TIMED = 20


def workers_that_pay(env: EnvLike, env_kwargs: Mapping[str, Any], copies: int) -> int:
    """Return the number of worker processes that make stepping faster; 0 means in this process."""
    workers = min(cores(), copies)
    if workers < 2 or isinstance(env, gymnasium.Env):
        return 0
    step = seconds_per_step(env, env_kwargs)
    alone = copies * step
    divided = -(-copies // workers) * step + _SECONDS_PER_LOCKSTEP + workers * _SECONDS_PER_WORKER
    return workers if alone > _WORTHWHILE_SPEEDUP * divided else 0


def seconds_per_step(env: EnvLike, env_kwargs: Mapping[str, Any]) -> float:
    """Time a few random steps of a copy that is made for this only."""
    copy = make_copy(env, env_kwargs, first=False)
    try:
        copy.reset(seed=0)
        copy.action_space.seed(0)
        took = sorted(_timed_step(copy) for _ in range(_STEPS_TIMED))
    finally:
        copy.close()
    return took[len(took) // 2]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _timed_step(env: gymnasium.Env[Any, Any]) -> float:
    action = env.action_space.sample()
    start = time.perf_counter()
    _, _, terminated, truncated, _ = env.step(action)
    took = time.perf_counter() - start
    if terminated or truncated:
        env.reset()
    return took
