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
from numbers import Integral, Real
from typing import Any, Literal, TypeVar

from ppo_dice.errors import UserError

AnyPPOConfig = TypeVar("AnyPPOConfig", bound="PPOConfig")

FORMAT_VERSION = 1
"""Stands in every file we write; raised when an older reader would misunderstand the file."""


def _static(default: float) -> Any:
    """A float that is part of the compiled code."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass(frozen=True)
class Convolutions:
    """What reads an image: convolutional layers and a fully connected one, with a ReLU after each."""

    filters: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    features: int


NATURE = Convolutions((32, 64, 64), (8, 4, 3), (4, 2, 1), 512)
"""Mnih et al. (2015)."""
SMALL = Convolutions((16,), (3,), (1,), 128)
"""For images that are too small for `NATURE`; that of MinAtar's authors."""
SMALLEST_NATURE = 36
"""Pixels that `NATURE` needs at least."""


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
    block_length: int = 1
    """Consecutive steps of a copy that stay together when minibatches are shuffled."""
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
    """Widths of the hidden layers, of the policy and of the value each; of images they read the features."""
    cnn_filters: tuple[int, ...] = ()
    """Filters of the convolutions that read images; none stands for 32 64 64, or 16 for small images."""
    cnn_kernels: tuple[int, ...] = ()
    """Widths of their kernels; none stands for 8 4 3, or 3 for small images."""
    cnn_strides: tuple[int, ...] = ()
    """Their strides; none stands for 4 2 1, or 1 for small images."""
    cnn_features: int = 0
    """Width of the layer behind the convolutions; 0 stands for 512, or 128 for small images."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity between the layers."""
    policy_head_gain: float = 1.0
    """Orthogonal gain of the policy's last layer; a small one makes the first policy act alike everywhere."""
    log_std_init: float = 0.0
    """Initial logarithm of the standard deviation of continuous actions."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("n_envs", "n_steps", "n_epochs", "n_minibatches", "block_length"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(
            self.batch_size % self.n_minibatches == 0,
            "n_minibatches",
            f"a divisor of n_envs · n_steps = {self.batch_size}",
            self.n_minibatches,
        )
        require(
            self.n_steps % self.block_length == 0 and self.minibatch_size % self.block_length == 0,
            "block_length",
            f"a divisor of n_steps = {self.n_steps} and of the {self.minibatch_size} steps of a minibatch",
            self.block_length,
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
        for name in ("cnn_filters", "cnn_kernels", "cnn_strides"):
            sizes = getattr(self, name)
            require(all(size >= 1 for size in sizes), name, "sizes ≥ 1", sizes)
            fits = len(sizes) == len(self.cnn_filters)
            require(fits, name, f"{len(self.cnn_filters)} numbers, as many as cnn_filters", sizes)
        require(self.cnn_features >= 0, "cnn_features", "at least 0", self.cnn_features)

    @property
    def batch_size(self) -> int:
        """Transitions per iteration and seed."""
        return self.n_envs * self.n_steps

    @property
    def minibatch_size(self) -> int:
        """Transitions per gradient step."""
        return self.batch_size // self.n_minibatches

    def convolutions(self, height: int, width: int) -> Convolutions:
        """What reads images of this size."""
        usual = NATURE if min(height, width) >= SMALLEST_NATURE else SMALL
        layers = (self.cnn_filters, self.cnn_kernels, self.cnn_strides)
        chosen = layers if self.cnn_filters else (usual.filters, usual.kernels, usual.strides)
        return Convolutions(*chosen, self.cnn_features or usual.features)

    @property
    def annealed_fields(self) -> tuple[str, ...]:
        """The numbers that may change during a run, for the record."""
        return ("learning_rate", "clip_range")

    def annealed(self: AnyPPOConfig, progress: float) -> AnyPPOConfig:
        """The config in force when the fraction `progress` of the run is done."""
        remaining = 1.0 - progress
        rate, clip = self.learning_rate, self.clip_range
        return dataclasses.replace(
            self,
            learning_rate=rate * remaining if self.learning_rate_schedule == "linear" else rate,
            clip_range=clip * remaining if self.clip_range_schedule == "linear" else clip,
        )


@dataclass(frozen=True)
class DiceConfig:
    """The regulariser of PPO-DICE: which divergence, how its discriminator is fitted, and its weight."""

    divergence: str = "kl"
    """Divergence: kl, reverse_kl, chi2, tv, js, hellinger, alpha, soft_chi2 or kl_paper (un-normalised)."""
    alpha_order: float = _static(1.5)
    """Order α of the divergence `alpha`."""
    form: Literal["difference", "paper"] = "difference"
    """How the objective is written: by the performance-difference lemma, or as the paper writes it."""
    known_ratio: bool = True
    """Let g be log π'/π (for any φ its φ'), which is known, and a network on top of it."""
    chain: Literal["restart", "absorbing", "absorbing-all"] = "restart"
    """What follows the end of an episode: the next one, or an absorbing state."""
    initial_states: Literal["chain", "all", "episode", "rollout"] = "chain"
    """Initial states of the paper's form: the chain's, all visited, firsts of episodes or of the rollout."""
    policy_gradient: Literal["auto", "score", "score-printed"] = "auto"
    """Exact or reparametrised, or the score function, with two actions or with one as the paper prints it."""
    action_samples: int = 2
    """Noises m over which actions are averaged where they cannot be summed; for Gaussians in pairs ±."""
    state_actions: Literal["taken", "fresh"] = "taken"
    """Noise of the actions in visited states: that of the action which was taken, or fresh noise."""
    coefficient: float | Literal["adaptive", "target"] = 0.1
    """Weight λ: a number, adaptive (a percentile of |Â|), or target (moved until D̂ is target_divergence)."""
    adaptive_percentile: float = 90.0
    """Percentile of the absolute advantages that is λ when adaptive."""
    adaptive_scope: Literal["batch", "minibatch"] = "batch"
    """Take the percentile over the whole batch, or in each minibatch."""
    adaptive_advantages: Literal["normalized", "raw"] = "normalized"
    """Take the percentile of standardised advantages, or of those before standardisation."""
    target_divergence: float = 0.01
    """Divergence per iteration that the coefficient `target` aims at."""
    target_initial: float = 0.1
    """λ of the coefficient `target` in the first iteration."""
    target_rate: float = 0.5
    """Most that log λ moves in one iteration when the coefficient is `target`."""
    discriminator_steps: int = 1
    """Adam steps K of the discriminator before each step of the policy; 0 freezes it."""
    learning_rate_factor: float = 10.0
    """Learning rate of the discriminator over that of the policy, c_ψ."""
    learning_rate_schedule: Literal["policy", "constant", "linear"] = "policy"
    """Schedule of the discriminator's learning rate: the policy's, none, or a linear fall to zero."""
    fit_on: Literal["minibatch", "epoch"] = "minibatch"
    """Fit g before each step of the policy on its minibatch, or once per epoch on the whole batch."""
    resample_actions: bool = False
    """Draw fresh noise for each of the K steps, instead of keeping it."""
    recenter: bool = True
    """Begin each iteration with a last layer of zeros and the discriminator's optimiser at rest."""
    max_grad_norm: float | None = 0.5
    """The gradient of the discriminator is scaled down to this norm; None switches it off."""
    orthogonal_penalty: float | None = None
    """Weight of Σ ‖WWᵀ − I‖² over the discriminator's hidden layers; None leaves it out."""
    gradient_penalty: float | None = None
    """Weight of E‖∇g‖², with respect to observations and continuous actions; None leaves it out."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the discriminator."""
    certificate: Literal["gate", "log", "off"] = "gate"
    """Drop the regulariser where a check proves D̂ wrong, only log the checks, or leave them out."""
    encoder: Literal["own", "shared"] = "own"
    """Read images by convolutions of its own, or by the policy's, which it then does not train."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the discriminator's hidden layers."""
    activation: Literal["tanh", "relu"] = "relu"
    """Non-linearity of the discriminator."""

    def __post_init__(self) -> None:
        check_types(self)
        require(self.action_samples >= 1, "dice.action_samples", "at least 1", self.action_samples)
        require(
            self.discriminator_steps >= 0, "dice.discriminator_steps", "at least 0", self.discriminator_steps
        )
        for name in ("learning_rate_factor", "weight_decay", "coefficient"):
            value = getattr(self, name)
            fits = isinstance(value, str) or 0 <= value < math.inf
            require(fits, f"dice.{name}", "a finite number ≥ 0", value)
        for name in ("orthogonal_penalty", "gradient_penalty"):
            value = getattr(self, name)
            fits = value is None or 0 <= value < math.inf
            require(fits, f"dice.{name}", "a finite number ≥ 0, or None", value)
        for name in ("target_divergence", "target_initial", "target_rate"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"dice.{name}", "a finite number > 0", value)
        require(
            0 <= self.adaptive_percentile <= 100,
            "dice.adaptive_percentile",
            "in [0, 100]",
            self.adaptive_percentile,
        )
        require(
            self.max_grad_norm is None or self.max_grad_norm > 0,
            "dice.max_grad_norm",
            "a number > 0, or None",
            self.max_grad_norm,
        )
        require(
            len(self.hidden_sizes) >= 1 and all(size >= 1 for size in self.hidden_sizes),
            "dice.hidden_sizes",
            "one or more sizes ≥ 1",
            self.hidden_sizes,
        )
        require(
            self.form == "paper" or self.initial_states == "chain",
            "dice.initial_states",
            "`chain` in the difference form, which needs none",
            self.initial_states,
        )
        require(
            self.initial_states in ("chain", "all") or not self.known_ratio,
            "dice.known_ratio",
            "False with initial states that are not all visited ones",
            self.known_ratio,
        )

    def annealed(self, remaining: float, policy_share: float) -> "DiceConfig":
        """The config in force when these shares of the run and of the policy's learning rate are left."""
        share = {"policy": policy_share, "constant": 1.0, "linear": remaining}[self.learning_rate_schedule]
        return dataclasses.replace(
            self, learning_rate_factor=self.learning_rate_factor * share / policy_share
        )


@dataclass(frozen=True)
class PPODiceConfig(PPOConfig):
    """PPO-DICE (Touati et al. 2020): PPO less a divergence between visitation distributions."""

    dice: DiceConfig = dataclasses.field(default_factory=DiceConfig)
    """The regulariser."""

    def annealed(self, progress: float) -> "PPODiceConfig":
        """The config in force when the fraction `progress` of the run is done."""
        remaining = 1.0 - progress
        policy_share = remaining if self.learning_rate_schedule == "linear" else 1.0
        ppo: PPODiceConfig = super().annealed(progress)
        return dataclasses.replace(ppo, dice=self.dice.annealed(remaining, policy_share))


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
    """Where environments run: envpool, ale, gymnasium, or auto (EnvPool where it has the environment)."""
    workers: int | None = None
    """Worker processes of the gymnasium backend; 0 steps in this process, None decides by a short timing."""

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.seed < 2**31, "seed", "in [0, 2³¹)", self.seed)
        require(self.seeds >= 1, "seeds", "at least 1", self.seeds)
        require(self.seed + self.seeds <= 2**31, "seed + seeds", "at most 2³¹", self.seed + self.seeds)
        require(self.total_timesteps >= 1, "total_timesteps", "at least 1", self.total_timesteps)
        require(self.workers is None or self.workers >= 0, "workers", "at least 0, or None", self.workers)

    @property
    def seed_values(self) -> range:
        """The seeds of the population."""
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True)
class FilmConfig:
    """What a film shows."""

    episodes: int = 1
    """Episodes, one after the other."""
    max_steps: int = 10_000
    """Steps after which an episode is cut."""
    stochastic: bool = False
    """Sample actions instead of taking the most probable ones."""
    env_seed: int = 0
    """Picks another set of starts of the environment."""
    every: int | None = None
    """Steps between frames; None takes the fewest that show real time at 30 frames per second or less."""
    fps: float | None = None
    """Frames per second; None is real time, as the environment declares it."""

    def __post_init__(self) -> None:
        check_types(self)
        require(self.episodes >= 1, "episodes", "at least 1", self.episodes)
        require(1 <= self.max_steps <= 100_000, "max_steps", "in [1, 100000]", self.max_steps)
        require(self.env_seed >= 0, "env_seed", "at least 0", self.env_seed)
        require(self.every is None or self.every >= 1, "every", "at least 1", self.every)
        require(self.fps is None or 0 < self.fps <= 1000, "fps", "in (0, 1000]", self.fps)


def require(condition: bool, name: str, wanted: str, value: object) -> None:
    """Refuse a value with a sentence that names the field, what it must be, and what it was."""
    if not condition:
        raise UserError(f"{name} must be {wanted}, but is {value}.")


def check_types(config: Any) -> None:
    """Refuse fields whose value is not of the declared type (the API has no command line to check it).

    NumPy's numbers become Python's, which JSON can hold.
    """
    for name, hint in typing.get_type_hints(type(config)).items():
        value = _plain(getattr(config, name))
        object.__setattr__(config, name, value)  # the config is frozen, but still being made
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
    if hint in (int, float):
        wanted = Integral if hint is int else Real
        return isinstance(value, wanted) and not isinstance(value, bool)
    return hint is Any or isinstance(value, hint)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)
