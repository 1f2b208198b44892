"""Contestant: ppo_dice, with any number of seeds at once."""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import task
from turns import Numbers, take_turns

from ppo_dice.algorithms import get_algorithm
from ppo_dice.commands import prepare_jax
from ppo_dice.envs import environment_seeds, make_envs
from ppo_dice.presets import preset

ENDLESS = 10**9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--dice", type=json.loads, help="train PPO-DICE with these settings of its own")
    options = parser.parse_args()
    prepare_jax()  # the settings a run from the command line has
    iterations = start_training(options.seeds, options.backend, options.dice)
    packages = ("ppo-dice", "jax", "jaxlib", "equinox", "optax", "envpool", "numpy")
    take_turns(partial(one_iteration, iterations, options.seeds), packages)


def start_training(n_seeds: int, backend: str, dice: dict[str, Any] | None) -> Iterator:
    from ppo_dice.training import init_population, train

    name = "ppo" if dice is None else "ppo-dice"
    config = preset(name, task.ENV_ID, "published" if dice is None else "default")
    if dice is not None:
        config = replace(config, dice=replace(config.dice, **dice))
    assert (config.n_envs, config.n_steps) == (1, task.N_STEPS)
    assert (config.n_epochs, config.n_minibatches) == (task.N_EPOCHS, task.N_MINIBATCHES)
    seeds = tuple(range(n_seeds))
    env_seeds = [environment_seeds(seed, 1)[0] for seed in seeds]
    envs = make_envs(task.ENV_ID, env_seeds, backend=backend)
    algorithm = get_algorithm(name)
    population = init_population(algorithm, envs.spec, seeds, config)
    return train(algorithm, envs, population, config, ENDLESS)


def one_iteration(iterations: Iterator, n_seeds: int) -> Numbers:
    began = time.perf_counter()
    metrics = next(iterations).metrics[0]
    seconds = time.perf_counter() - began
    parts = {part: metrics[f"time/{part}_seconds"] for part in ("env", "act", "learn", "compile")}
    collect = seconds - parts["learn"] - parts["compile"]
    return {"steps": n_seeds * task.N_STEPS, "seconds": seconds, "collect": collect, **parts}


if __name__ == "__main__":
    main()
