"""Contestant: EnvPool alone with random actions, finished copies reset at once."""

import argparse
import time
import warnings
from functools import partial
from typing import Any

import envpool
import numpy as np
import task
from turns import Numbers, take_turns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--copies", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # EnvPool lowers the precision of its own bounds
    pool = envpool.make_gymnasium(task.ENV_ID, num_envs=options.copies, num_threads=options.threads, seed=0)
    pool.reset()
    space = pool.action_space
    shape = (task.N_STEPS, options.copies, *space.shape)
    actions = np.random.default_rng(0).uniform(space.low, space.high, shape).astype(space.dtype)
    take_turns(partial(rollout, pool, actions), ("envpool",))


def rollout(pool: Any, actions: np.ndarray) -> Numbers:
    began = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = pool.step(action)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            pool.reset(ended.astype(np.int32))
    seconds = time.perf_counter() - began
    return {"steps": actions.shape[0] * actions.shape[1], "seconds": seconds, "collect": seconds}


if __name__ == "__main__":
    main()
