"""Named settings by algorithm and environment.

* `default`: ours. In general what the paper's authors really ran, until something else has proved better; for
  the classic control tasks settings that solve them quickly.
* `paper`: the text and tables of the paper; where they are silent, the published code.
* `published`: what the paper's released scripts run.

The paper has no classic control, so `paper` and `published` are its MuJoCo settings on every vector task.
"""

from collections.abc import Mapping
from typing import Any

from ppo_dice.algorithms import config_class
from ppo_dice.errors import UserError

PRESET_NAMES = ("default", "paper", "published")

_SMALL_HEAD = {"policy_head_gain": 0.01}  # the first policy acts alike everywhere

PUBLISHED: Mapping[str, Any] = {
    "n_envs": 1,
    "n_steps": 2048,
    "n_epochs": 10,
    "n_minibatches": 32,
    "learning_rate": 3e-4,
    "learning_rate_schedule": "linear",
    "adam_eps": 1e-5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.25,
    "max_grad_norm": 0.5,
    "policy_head_gain": 1.0,
}
PAPER: Mapping[str, Any] = {
    **PUBLISHED,
    "n_minibatches": 4,
    "learning_rate_schedule": "constant",
    "vf_coef": 0.5,
}
GENERAL: Mapping[str, Any] = {}  # the defaults of the config are the default preset
CLASSIC_CONTROL: Mapping[str, Mapping[str, Any]] = {
    "CartPole": {
        "n_envs": 8,
        "n_steps": 32,
        "n_epochs": 20,
        "n_minibatches": 1,
        "learning_rate": 1e-3,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "clip_range_schedule": "linear",
        "normalize_observations": False,
        "normalize_rewards": False,
        **_SMALL_HEAD,
    },
    "Acrobot": {
        "n_envs": 16,
        "n_steps": 256,
        "n_epochs": 4,
        "n_minibatches": 64,
        "gae_lambda": 0.94,
        **_SMALL_HEAD,
    },
    "MountainCar": {
        "n_envs": 16,
        "n_steps": 16,
        "n_epochs": 4,
        "n_minibatches": 4,
        "gae_lambda": 0.98,
        **_SMALL_HEAD,
    },
    "Pendulum": {
        "n_envs": 16,
        "n_steps": 128,
        "n_minibatches": 16,
        "learning_rate": 1e-3,
        "gamma": 0.95,
        **_SMALL_HEAD,
    },
}


def preset(algorithm: str, env: Any, name: str = "default") -> Any:
    """The config that `name` means for this algorithm on this environment: an id, or what has none."""
    cls = config_class(algorithm)
    if name not in PRESET_NAMES:
        raise UserError(f"There is no preset {name!r}; known are: {', '.join(PRESET_NAMES)}.")
    settings = {"paper": PAPER, "published": PUBLISHED, "default": _ours(env)}[name]
    return cls(**settings)


def _ours(env: Any) -> Mapping[str, Any]:
    if not isinstance(env, str):
        return GENERAL
    task = env.split(":")[-1].split("/")[-1].rpartition("-v")[0]
    return CLASSIC_CONTROL.get(task, GENERAL)
