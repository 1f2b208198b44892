"""Named settings by algorithm and environment.

* `default`: ours. In general what the paper's authors really ran, until something else has proved better; for
  the classic control tasks settings that solve them quickly.
* `paper`: the text and tables of the paper; where they are silent, the published code.
* `published`: what the paper's released scripts run.
* `paper-tuned`: `paper` with the discriminator's steps and learning rate for each MuJoCo task, from a table
  that is commented out in the paper's source; only for PPO-DICE.

On Atari's games `paper` and `published` are the paper's settings for Atari, and `default` has those of PPO
among them; on all other tasks `paper` and `published` are its settings for MuJoCo.
"""

from collections.abc import Mapping
from typing import Any

from ppo_dice.algorithms import config_class
from ppo_dice.atari_games import game_of
from ppo_dice.config import DiceConfig, PPODiceConfig
from ppo_dice.errors import UserError

PRESET_NAMES = ("default", "paper", "published")
DICE_PRESET_NAMES = (*PRESET_NAMES, "paper-tuned")

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
ATARI: Mapping[str, Any] = {  # both in the paper and in its code
    "n_envs": 8,
    "n_steps": 128,
    "n_epochs": 4,
    "n_minibatches": 4,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "linear",
    "clip_range": 0.1,
    "ent_coef": 0.01,
    "vf_coef": 0.25,
    "time_limits": "terminate",
    "normalize_observations": False,
    "normalize_rewards": False,
    "hidden_sizes": (),
    **_SMALL_HEAD,
}
# g reads the policy's features, and steps that stay together spare both the successors'.
DICE_ATARI_DEFAULT: Mapping[str, Any] = {"encoder": "shared"}
ATARI_BLOCK_LENGTH = 8

# The paper's form has one sampled action in every place, an adaptive λ and no checks.
_DICE_AS_PRINTED: Mapping[str, Any] = {
    "divergence": "kl",
    "form": "paper",
    "known_ratio": False,
    "chain": "restart",
    "action_samples": 1,
    "coefficient": "adaptive",
    "adaptive_percentile": 90.0,
    "adaptive_advantages": "normalized",
    "recenter": False,
    "max_grad_norm": 0.5,
    "orthogonal_penalty": 1e-4,
    "certificate": "log",
    "hidden_sizes": (64, 64),
    "activation": "relu",
}
DICE_PAPER: Mapping[str, Any] = {
    **_DICE_AS_PRINTED,
    "initial_states": "rollout",
    "discriminator_steps": 5,
    "learning_rate_factor": 10.0,
    "resample_actions": True,
    "adaptive_scope": "batch",
}
DICE_PUBLISHED: Mapping[str, Any] = {
    **_DICE_AS_PRINTED,
    "initial_states": "all",
    "discriminator_steps": 1,
    "learning_rate_factor": 1.0,
    "learning_rate_schedule": "constant",
    "adaptive_scope": "minibatch",
}
DICE_ATARI: Mapping[str, Any] = {
    "discriminator_steps": 5,
    "learning_rate_factor": 10.0,
    "policy_gradient": "score-printed",
}
DICE_TUNED: Mapping[str, tuple[int, float]] = {
    "Ant": (5, 2),
    "HalfCheetah": (20, 10),
    "Hopper": (5, 5),
    "Humanoid": (5, 10),
    "HumanoidStandup": (5, 10),
    "InvertedDoublePendulum": (5, 10),
    "InvertedPendulum": (5, 10),
    "Reacher": (5, 10),
    "Swimmer": (5, 5),
    "Walker2d": (10, 1),
}
"""Steps K and learning-rate factor c_ψ of the discriminator."""

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


def preset_names(algorithm: str) -> tuple[str, ...]:
    """The presets of an algorithm."""
    return DICE_PRESET_NAMES if issubclass(config_class(algorithm), PPODiceConfig) else PRESET_NAMES


def preset(algorithm: str, env: Any, name: str = "default") -> Any:
    """The config that `name` means for this algorithm on this environment: an id, or what has none."""
    cls, names = config_class(algorithm), preset_names(algorithm)
    if name not in names:
        raise UserError(f"There is no preset {name!r} for {algorithm}; known are: {', '.join(names)}.")
    task = _task(env)
    if name == "default":
        settings = ATARI if _is_atari(env) else CLASSIC_CONTROL.get(task, GENERAL)
    else:
        settings = {**(PUBLISHED if name == "published" else PAPER), **(ATARI if _is_atari(env) else {})}
    if issubclass(cls, PPODiceConfig) and name != "default":
        settings = {**settings, "dice": _dice(env, name)}
    elif issubclass(cls, PPODiceConfig) and _is_atari(env):
        dice = DiceConfig(**DICE_ATARI_DEFAULT)
        settings = {**settings, "dice": dice, "block_length": ATARI_BLOCK_LENGTH}
    return cls(**settings)


def _dice(env: Any, name: str) -> DiceConfig:
    settings = dict(DICE_PUBLISHED if name == "published" else DICE_PAPER)
    if _is_atari(env):
        settings |= DICE_ATARI
    elif name == "paper-tuned" and _task(env) in DICE_TUNED:
        steps, factor = DICE_TUNED[_task(env)]
        settings |= {"discriminator_steps": steps, "learning_rate_factor": float(factor)}
    return DiceConfig(**settings)


def _is_atari(env: Any) -> bool:
    return game_of(env) is not None


def _task(env: Any) -> str:
    """The name of the task without namespace and version; that of no task where there is no id."""
    return env.split(":")[-1].split("/")[-1].rpartition("-v")[0] if isinstance(env, str) else ""
