"""Every setting, as frozen dataclasses; the sentence under a field is the command line's help.

One rule decides what costs a recompilation: *a float is traced, everything else is static*. Floats (learning
rates, γ, coefficients …) enter the compiled update as arrays, so changing one recompiles nothing; integers,
strings, flags and tuples fix shapes, loop counts and branches. `None` in place of a float is a branch too.

This module imports no JAX, so that `ppo-dice --help` is quick; `types.register_config` makes a config a tree.
"""

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Any, Literal

from ppo_dice.errors import UserError

FORMAT_VERSION = 1
"""Stands in every file we write; raised when an older reader would misunderstand the file."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation (Schulman et al. 2017). Names are those of Stable-Baselines3."""

    n_envs: int = 1
    """Copies of the environment per seed."""
    n_steps: int = 2048
    """Steps of each copy per iteration; one iteration collects n_envs · n_steps transitions per seed."""
    n_epochs: int = 10
    """Passes over the collected transitions per iteration."""
    n_minibatches: int = 32
    """Minibatches per epoch; must divide n_envs · n_steps."""
    learning_rate: float = 3e-4
    """Adam's step size at the start of the run."""
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    """Keep the learning rate, or let it fall linearly to zero over the run."""
    adam_eps: float = 1e-5
    """Adam's ε."""
    gamma: float = 0.99
    """Discount factor γ."""
    gae_lambda: float = 0.95
    """Decay λ of generalised advantage estimation."""
    clip_range: float = 0.2
    """The probability ratio π'/π is clipped to 1 ± this."""
    clip_range_schedule: Literal["constant", "linear"] = "constant"
    """Keep the clip range, or let it fall linearly to zero over the run."""
    surrogate: Literal["clipped", "unclipped"] = "clipped"
    """The clipped surrogate L_clip of PPO, or the plain importance-weighted L."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus."""
    vf_coef: float = 0.25
    """Weight of the value loss, which is the mean squared error."""
    max_grad_norm: float | None = 0.5
    """The gradient of policy and value together is scaled down to this norm; None switches it off."""
    value_target: Literal["gae", "n-step"] = "gae"
    """Regress the value on Â + V, or on the discounted rewards bootstrapped at the end of the rollout."""
    time_limits: Literal["bootstrap", "terminate"] = "bootstrap"
    """At a time limit, bootstrap from the true final observation, or treat it as a termination."""
    standardize_advantages: bool = True
    """Give the advantages of each iteration mean 0 and standard deviation 1."""
    target_kl: float | None = None
    """Stop the iteration once the estimated KL of a minibatch exceeds 1.5 times this; None never stops."""
    kl_penalty: Literal["none", "fixed", "adaptive"] = "none"
    """Add λ·E KL(π‖π'), in closed form, to the loss; adaptive moves λ so that the KL meets kl_target."""
    kl_coef: float = 1.0
    """The λ of kl_penalty; its initial value when adaptive."""
    kl_target: float = 0.01
    """KL per iteration that the adaptive penalty aims at."""
    normalize_observations: bool = True
    """Standardise observations by running moments, frozen within an iteration."""
    observation_clip: float = 10.0
    """Standardised observations are clipped to ± this."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return."""
    reward_clip: float = 10.0
    """Divided rewards are clipped to ± this."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers, of the policy and of the value each."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity between the layers."""
    policy_head_gain: float = 1.0
    """Orthogonal gain of the policy's last layer; a small one makes the first policy act alike everywhere."""
    log_std_init: float = 0.0
    """Initial logarithm of the standard deviation of continuous actions."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("n_envs", "n_steps", "n_epochs", "n_minibatches"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(
            self.batch_size % self.n_minibatches == 0,
            "n_minibatches",
            f"a divisor of n_envs · n_steps = {self.batch_size}",
            self.n_minibatches,
        )
        require(
            self.batch_size > 1 or not self.standardize_advantages,
            "n_envs · n_steps",
            "at least 2 when advantages are standardised",
            self.batch_size,
        )
        for name in ("learning_rate", "ent_coef", "vf_coef", "kl_coef", "policy_head_gain"):
            require(0 <= getattr(self, name) < math.inf, name, "a finite number ≥ 0", getattr(self, name))
        for name in ("adam_eps", "clip_range", "kl_target", "observation_clip", "reward_clip"):
            require(getattr(self, name) > 0, name, "a number > 0", getattr(self, name))
        for name in ("max_grad_norm", "target_kl"):
            value = getattr(self, name)
            require(value is None or value > 0, name, "a number > 0, or None", value)
        require(0 <= self.gamma < 1, "gamma", "in [0, 1)", self.gamma)
        require(0 <= self.gae_lambda <= 1, "gae_lambda", "in [0, 1]", self.gae_lambda)
        require(math.isfinite(self.log_std_init), "log_std_init", "a finite number", self.log_std_init)
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", "sizes ≥ 1", self.hidden_sizes)

    @property
    def batch_size(self) -> int:
        """Transitions per iteration and seed."""
        return self.n_envs * self.n_steps

    @property
    def minibatch_size(self) -> int:
        """Transitions per gradient step."""
        return self.batch_size // self.n_minibatches

    @property
    def annealed_fields(self) -> tuple[str, ...]:
        """The numbers that may change during a run, for the record."""
        return ("learning_rate", "clip_range")

    def annealed(self, progress: float) -> "PPOConfig":
        """The config in force when the fraction `progress` of the run is done."""
        remaining = 1.0 - progress
        rate, clip = self.learning_rate, self.clip_range
        return dataclasses.replace(
            self,
            learning_rate=rate * remaining if self.learning_rate_schedule == "linear" else rate,
            clip_range=clip * remaining if self.clip_range_schedule == "linear" else clip,
        )


@dataclass(frozen=True)
class RunConfig:
    """What is trained, on what, for how long: everything about a run but the algorithm's own settings."""

    seed: int = 0
    """First seed of the population."""
    seeds: int = 1
    """Number of seeds, trained side by side in one process: seed, seed + 1, …"""
    total_timesteps: int = 1_000_000
    """Environment steps per seed."""
    backend: str = "auto"
    """Where environments run: envpool, gymnasium, or auto (EnvPool where it has the environment)."""
    workers: int | None = None
    """Worker processes of the gymnasium backend; 0 steps in this process, None decides by a short timing."""

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.seed < 2**31, "seed", "in [0, 2³¹)", self.seed)
        require(self.seeds >= 1, "seeds", "at least 1", self.seeds)
        require(self.total_timesteps >= 1, "total_timesteps", "at least 1", self.total_timesteps)
        require(self.workers is None or self.workers >= 0, "workers", "at least 0, or None", self.workers)

    @property
    def seed_values(self) -> range:
        """The seeds of the population."""
        return range(self.seed, self.seed + self.seeds)


def require(condition: bool, name: str, wanted: str, value: object) -> None:
    """Refuse a value with a sentence that names the field, what it must be, and what it was."""
    if not condition:
        raise UserError(f"{name} must be {wanted}, but is {value}.")


def check_types(config: Any) -> None:
    """Refuse fields whose value is not of the declared type (the API has no command line to check it)."""
    for name, hint in typing.get_type_hints(type(config)).items():
        value = getattr(config, name)
        if not _is_instance(value, hint):
            wanted = getattr(hint, "__name__", str(hint)) if typing.get_origin(hint) is None else str(hint)
            raise UserError(f"{name} must be {wanted.replace('typing.', '')}, but is {value!r}.")


def _is_instance(value: object, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_instance(item, arguments[0]) for item in value)
    if arguments:  # a union
        return any(_is_instance(value, argument) for argument in arguments)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint is Any or isinstance(value, hint)
