"""Environments: one contract for every backend, from a name to arrays."""

from ppo_dice.envs.catalog import MakePool, list_environments, make_envs, register_backend
from ppo_dice.envs.contract import Environments, EnvSpec, Step
from ppo_dice.envs.seeding import environment_seeds
from ppo_dice.envs.space_json import space_from_json, space_to_json
from ppo_dice.envs.spaces import (
    action_converter,
    action_size,
    category_counts,
    check_spaces,
    flatten_observation,
    flatten_observations,
    numbers_of,
    observation_bytes,
    observation_flattener,
    observation_size,
    to_env_actions,
    unstack_actions,
)
from ppo_dice.envs.workers import WorkerError

__all__ = [
    "EnvSpec",
    "Environments",
    "MakePool",
    "Step",
    "WorkerError",
    "action_converter",
    "action_size",
    "category_counts",
    "check_spaces",
    "environment_seeds",
    "flatten_observation",
    "flatten_observations",
    "list_environments",
    "make_envs",
    "numbers_of",
    "observation_bytes",
    "observation_flattener",
    "observation_size",
    "register_backend",
    "space_from_json",
    "space_to_json",
    "to_env_actions",
    "unstack_actions",
]
