"""Contestant on Atari: ppo_dice, one seed, with some settings changed: `ours_pixels.py ALGORITHM [JSON]`."""

import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from turns import Numbers, take_turns

from ppo_dice.algorithms import get_algorithm
from ppo_dice.commands import prepare_jax
from ppo_dice.envs import environment_seeds, make_envs
from ppo_dice.presets import preset

ENV_ID = "Pong-v5"
ENDLESS = 10**9


def main() -> None:
    name, *changes = sys.argv[1:]
    prepare_jax()
    iterations = start_training(name, json.loads(changes[0]) if changes else {})
    take_turns(partial(one_iteration, iterations), ("ppo-dice", "jax", "jaxlib", "envpool", "numpy"))


def start_training(name: str, changes: dict) -> Iterator:
    from ppo_dice.training import init_population, train

    config = preset(name, ENV_ID)
    if "dice" in changes:
        changes["dice"] = replace(config.dice, **changes["dice"])
    config = replace(config, **changes)
    assert (config.batch_size, config.n_epochs, config.minibatch_size) == (1024, 4, 256)
    envs = make_envs(ENV_ID, environment_seeds(0, config.n_envs))
    algorithm = get_algorithm(name)
    population = init_population(algorithm, envs.spec, (0,), config)
    return train(algorithm, envs, population, config, ENDLESS)


def one_iteration(iterations: Iterator) -> Numbers:
    began = time.perf_counter()
    metrics = next(iterations).metrics[0]
    seconds = time.perf_counter() - began
    learn, compiling = metrics["time/learn_seconds"], metrics["time/compile_seconds"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "steps": 1024,
        "seconds": seconds,
        "collect": seconds - learn - compiling,
        "learn": learn,
        "memory": memory,
    }


if __name__ == "__main__":
    main()
