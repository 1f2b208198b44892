"""A continuous system with exact answers: linear dynamics, Gaussian noise, linear-Gaussian policies.

    s' = a s + b u + noise ξ,    ξ ~ N(0, 1),    u ~ N(K s + b₀, σ²)

A policy (K, b₀, σ) moves normal distributions of states to normal ones, so the visitation of π' from the
stationary distribution of π is a geometric mixture of Gaussians, d' = (1−γ) Σ γᵏ N(m_k, v_k), and KL(d'‖d) is
an integral over one dimension.
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float

from ppo_dice.errors import UserError
from ppo_dice.tabular.sampling import check_sizes, generator
from ppo_dice.tabular.validation import discount
from ppo_dice.types import Key, Rollout

_NEGLIGIBLE = 1e-18
_WIDTH = 12.0  # the quadrature goes out to 12 standard deviations of every component
_GRID, _RESOLUTION = 8001, 2.0  # points at least, and for each standard deviation of the narrowest component
_ACTION_LIMIT, _WORST_COST = 10.0, 10.0
_ACTION_COST = 0.1

Triple = tuple[float | int, float | int, float | int]


class LinearPolicy(NamedTuple):
    """u ~ N(gain · s + bias, std²), written (K, b₀, σ)."""

    gain: float | int
    bias: float | int
    std: float | int


class Normal(NamedTuple):
    """N(mean, std²)."""

    mean: float
    std: float


class Mixture(NamedTuple):
    """Σ weight_k N(mean_k, std_k²)."""

    weight: Float[np.ndarray, " K"]
    mean: Float[np.ndarray, " K"]
    std: Float[np.ndarray, " K"]

    def log_density(self, s: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
        """log Σ weight_k N(s; mean_k, std_k²)."""
        total = np.full(len(s), -np.inf)
        for weight, mean, std in zip(*self):
            total = np.logaddexp(total, np.log(weight) + _log_normal(s, mean, std))
        return total


class KLParts(NamedTuple):
    """KL(μ'‖μ) = KL(d'‖d) + E_{d'}KL(π'‖π)."""

    total: float
    state: float
    action: float


class LinearGaussian(gymnasium.Env[Float[np.ndarray, "1"], Float[np.ndarray, "1"]]):
    """s' = a s + b u + noise ξ, with a discount γ; policies are triples (K, b₀, σ) or a `LinearPolicy`.

    As an environment it is endless and begins in N(0, 1); actions are clipped to ±10, and the reward is
    −min(s² + u²/10, 10), a quadratic cost with a bound.
    """

    def __init__(self, a: float, b: float, noise: float, gamma: float) -> None:
        for name, value in (("a", a), ("b", b), ("noise", noise)):
            if not np.isfinite(value):
                raise UserError(f"{name} must be a finite number, but is {value}.")
        if noise < 0:
            raise UserError(f"noise is a standard deviation and must not be negative, but is {noise}.")
        if b == 0 and noise == 0:
            raise UserError("b and noise must not both be zero: the state would never change.")
        self.a, self.b, self.noise, self.gamma = float(a), float(b), float(noise), discount(gamma)
        self.observation_space = Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = Box(-_ACTION_LIMIT, _ACTION_LIMIT, (1,), np.float32)
        self._state: float | None = None

    def copy(self) -> "LinearGaussian":
        """The same system as an environment of its own, e.g. `PPO(system.copy, n_envs=8)`."""
        return LinearGaussian(self.a, self.b, self.noise, self.gamma)

    def stationary(self, policy: Triple | LinearPolicy) -> Normal:
        """In the long run, with A = a + bK: mean b b₀/(1−A), variance (b²σ² + noise²)/(1−A²)."""
        gain, bias, std = self._policy(policy)
        factor = self.a + self.b * gain
        variance = (self.b**2 * std**2 + self.noise**2) / (1 - factor**2)
        return Normal(self.b * bias / (1 - factor), float(np.sqrt(variance)))

    def visitation(self, new: Triple | LinearPolicy, old: Triple | LinearPolicy) -> Mixture:
        """d', the discounted state visitation of π' from the stationary distribution of π.

        m_k and v_k approach those of π' like Aᵏ and A²ᵏ. Once they are there, or once γᵏ is nothing, all that
        follows is one component.
        """
        limit, start = self.stationary(new), self.stationary(old)
        factor = self.a + self.b * new[0]
        k = np.arange(_components(self.gamma, abs(factor)) + 1)
        weight = (1 - self.gamma) * self.gamma**k
        weight[-1] = self.gamma ** k[-1]
        mean = limit.mean + factor**k * (start.mean - limit.mean)
        variance = limit.std**2 + factor ** (2 * k) * (start.std**2 - limit.std**2)
        kept = weight > 0
        return Mixture(weight[kept], mean[kept], np.sqrt(variance[kept]))

    def divergence(self, new: Triple | LinearPolicy, old: Triple | LinearPolicy) -> KLParts:
        """KL(μ'‖μ) of the discounted visitations from the stationary distribution of π, and its two parts."""
        mixture, stationary = self.visitation(new, old), self.stationary(old)
        state = _kl_to_normal(mixture, stationary)
        action = _mean_action_kl(mixture, self._policy(new), self._policy(old))
        return KLParts(state + action, state, action)

    def sample(
        self,
        policy: Triple | LinearPolicy,
        steps: int,
        key: Key,
        n_envs: int = 1,
        max_episode_steps: int | None = None,
    ) -> Rollout:
        """One seed's rollout, each episode from the policy's stationary distribution; `obs` [T + 1, N, 1]."""
        check_sizes(steps, n_envs, max_episode_steps)
        gain, bias, std = self._policy(policy)
        rng = generator(key)
        start = rng.normal(*self.stationary(policy), (steps + 1, n_envs))
        action_noise, state_noise = rng.standard_normal((2, steps, n_envs))
        state = np.empty((steps + 1, n_envs))
        action, successor = np.empty((2, steps, n_envs))
        elapsed = np.arange(steps) % (max_episode_steps or steps + 1)
        truncated = elapsed + 1 == max_episode_steps
        state[0] = start[0]
        for t in range(steps):
            action[t] = gain * state[t] + bias + std * action_noise[t]
            successor[t] = self.a * state[t] + self.b * action[t] + self.noise * state_noise[t]
            state[t + 1] = start[t + 1] if truncated[t] else successor[t]
        everywhere = np.ones(n_envs, np.int32)
        return Rollout(
            obs=state[..., None].astype(np.float32),
            final_obs=(truncated[:, None] * successor)[..., None].astype(np.float32),
            action=action[..., None].astype(np.float32),
            reward=_reward(state[:-1], action).astype(np.float32),
            terminated=np.zeros((steps, n_envs), bool),
            truncated=np.outer(truncated, everywhere).astype(bool),
            elapsed=np.outer(elapsed, everywhere).astype(np.int32),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "1"], dict[str, Any]]:
        """Begin an episode in N(0, 1)."""
        super().reset(seed=seed)
        self._state = float(self.np_random.standard_normal())
        return np.array([self._state], np.float32), {}

    def step(
        self, action: Float[np.ndarray, "1"]
    ) -> tuple[Float[np.ndarray, "1"], float, bool, bool, dict[str, Any]]:
        """One step of the dynamics."""
        if self._state is None:
            raise UserError("Call reset before the first step.")
        force = float(np.clip(action[0], -_ACTION_LIMIT, _ACTION_LIMIT))
        reward = float(_reward(self._state, force))
        self._state = self.a * self._state + self.b * force + self.noise * self.np_random.standard_normal()
        return np.array([self._state], np.float32), reward, False, False, {}

    def _policy(self, policy: Triple | LinearPolicy) -> LinearPolicy:
        checked = LinearPolicy(*policy)
        if not np.isfinite(checked).all() or checked.std <= 0:
            raise UserError(
                f"A policy is (K, b, sigma) of finite numbers with sigma > 0, but is {tuple(policy)}."
            )
        factor = self.a + self.b * checked.gain
        if abs(factor) >= 1:
            raise UserError(f"The policy is unstable: |a + b·K| = {abs(factor):.6g} must be below 1.")
        return checked


def _components(gamma: float, factor: float) -> int:
    """After how many steps γᵏ or Aᵏ is negligible, whichever comes first."""
    slowest = min(gamma, factor)
    return 1 if slowest == 0 else int(np.ceil(np.log(_NEGLIGIBLE) / np.log(slowest)))


def _kl_to_normal(mixture: Mixture, normal: Normal) -> float:
    """∫ d' log(d'/d) by the trapezoid rule, whose error falls exponentially for such functions."""
    low = (mixture.mean - _WIDTH * mixture.std).min()
    high = (mixture.mean + _WIDTH * mixture.std).max()
    grid = np.linspace(low, high, max(_GRID, int(_RESOLUTION * (high - low) / mixture.std.min())))
    log_new = mixture.log_density(grid)
    return float(np.trapezoid(np.exp(log_new) * (log_new - _log_normal(grid, *normal)), grid))


def _mean_action_kl(mixture: Mixture, new: LinearPolicy, old: LinearPolicy) -> float:
    """E_{d'}KL(π'‖π) = log(σ/σ') + (σ'² + E_{d'}[(ΔK s + Δb)²])/(2σ²) − ½, by the moments of d'."""
    gain, bias = new.gain - old.gain, new.bias - old.bias
    shift = (gain * mixture.mean + bias) ** 2 + gain**2 * mixture.std**2
    squares = new.std**2 + float(mixture.weight @ shift)
    return float(np.log(old.std / new.std) + squares / (2 * old.std**2) - 0.5)


def _log_normal(s: Float[np.ndarray, " R"], mean: float, std: float) -> Float[np.ndarray, " R"]:
    return -0.5 * ((s - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)


def _reward(state: Any, action: Any) -> Any:
    return -np.minimum(state**2 + _ACTION_COST * action**2, _WORST_COST)
