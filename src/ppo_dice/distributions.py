"""What a policy puts out: distributions over one action, as small values.

Everything is for a single state; callers `vmap`. Sampling is split in two: noise is drawn ahead, for a whole
rollout in one call, and `sample(noise)` is cheap arithmetic. The same noise given to two policies couples
their samples, which is what reparametrised estimators want.
"""

import math
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ppo_dice.types import Key

LOG_2PI = float(np.log(2 * np.pi))
LARGEST_ENUMERATION = 256
IMPOSSIBLE = -1e9
"""Logit of a category that does not exist; finite, so that 0 · log 0 stays 0 in values and gradients."""


@runtime_checkable
class Distribution(Protocol):
    """A distribution over one action, from which everything that PPO needs can be computed."""

    def sample(self, noise: Float[Array, "..."]) -> Shaped[Array, " A"]:
        """The action that this noise stands for."""
        ...

    def mode(self) -> Shaped[Array, " A"]:
        """The most probable action."""
        ...

    def log_prob(self, action: Shaped[Array, " A"]) -> Float[Array, ""]:
        """Log-density, or log-probability, of an action."""
        ...

    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats."""
        ...

    def kl_divergence(self, other: Any) -> Float[Array, ""]:
        """KL(self‖other), in closed form."""
        ...

    @property
    def enumerable(self) -> bool:
        """Whether `support` is all there is, with nothing left to the noise."""
        ...

    def support(self, noise: Float[Array, "M ..."]) -> "Support":
        """Weighted actions that stand for an expectation, differentiable in the policy."""
        ...


class Support(NamedTuple):
    """Actions with weights: Σ weight·g(action) stands for an expectation over actions.

    The weights carry the gradient with respect to the policy, or the actions do, or both.
    """

    action: Shaped[Array, "J A"]
    weight: Float[Array, " J"]


AnyDistribution = TypeVar("AnyDistribution", bound=Distribution)


class DiagonalGaussian(eqx.Module):
    """Independent normals, N(mean, exp(log_std)²)."""

    mean: Float[Array, " A"]
    log_std: Float[Array, " A"]

    def sample(self, noise: Float[Array, " A"]) -> Float[Array, " A"]:
        """mean + std · noise."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, " A"]:
        """The mean."""
        return self.mean

    def log_prob(self, action: Float[Array, " A"]) -> Float[Array, ""]:
        """Σ −½((a − mean)/std)² − log std − ½ log 2π."""
        standardized = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * standardized**2 - self.log_std - 0.5 * LOG_2PI)

    def entropy(self) -> Float[Array, ""]:
        """Σ log std + ½(1 + log 2π)."""
        return jnp.sum(self.log_std + 0.5 * (1 + LOG_2PI))

    def kl_divergence(self, other: "DiagonalGaussian") -> Float[Array, ""]:
        """Σ log(std'/std) + (std² + (mean − mean')²)/(2 std'²) − ½."""
        log_ratio = self.log_std - other.log_std
        distance = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return jnp.sum(0.5 * (jnp.exp(2 * log_ratio) + distance**2 - 1) - log_ratio)

    @property
    def enumerable(self) -> bool:
        """No."""
        return False

    def noise_of(self, action: Float[Array, " A"]) -> Float[Array, " A"]:
        """(action − mean)/std, the noise from which `sample` makes this action."""
        return (action - self.mean) * jnp.exp(-self.log_std)

    def support(self, noise: Float[Array, "M A"]) -> Support:
        """The reparametrised samples of this noise, equally weighted."""
        return sampled_support(self, noise)


class Categorical(eqx.Module):
    """Independent categorical variables, one per component of the action.

    Discrete spaces have one component, MultiDiscrete several, MultiBinary one of two categories per bit.
    Rows with fewer categories than the widest are padded with IMPOSSIBLE.
    """

    logits: Float[Array, "D K"]
    counts: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Categories of each component; None where none is padded."""

    def sample(self, noise: Float[Array, "D K"]) -> Int[Array, " D"]:
        """The Gumbel-max trick: argmax(logits + noise)."""
        return jnp.argmax(self.logits + noise, axis=-1)

    def mode(self) -> Int[Array, " D"]:
        """The most probable category of each component."""
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Int[Array, " D"]) -> Float[Array, ""]:
        """Σ log p(a)."""
        return jnp.sum(jnp.take_along_axis(self.log_probs, action[:, None], axis=-1))

    def entropy(self) -> Float[Array, ""]:
        """−Σ p log p."""
        return -jnp.sum(self.probs * self.log_probs)

    def kl_divergence(self, other: "Categorical") -> Float[Array, ""]:
        """Σ p (log p − log q)."""
        return jnp.sum(self.probs * (self.log_probs - other.log_probs))

    @property
    def enumerable(self) -> bool:
        """Whether there are few enough joint actions to sum over."""
        return enumerable(self._all_counts)

    def support(self, noise: Float[Array, "..."]) -> Support:
        """Every joint action with its probability; `score_support` where there are too many of them."""
        if not self.enumerable:
            return score_support(self, noise)
        joint = joint_actions(self._all_counts)
        components = jnp.arange(len(self._all_counts))
        return Support(jnp.asarray(joint), jnp.exp(jnp.sum(self.log_probs[components, joint], axis=-1)))

    @property
    def _all_counts(self) -> tuple[int, ...]:
        n_components, n_categories = self.logits.shape[-2:]
        return self.counts or (n_categories,) * n_components

    @property
    def log_probs(self) -> Float[Array, "D K"]:
        """Normalised logits."""
        return jax.nn.log_softmax(self.logits, axis=-1)

    @property
    def probs(self) -> Float[Array, "D K"]:
        """Probabilities of every category of every component."""
        return jax.nn.softmax(self.logits, axis=-1)


def kl_divergence(p: AnyDistribution, q: AnyDistribution) -> Float[Array, ""]:
    """KL(p‖q) in closed form."""
    return p.kl_divergence(q)


PolicyGradient = Literal["auto", "score", "score-printed"]
"""How an expectation over actions is differentiated with respect to the policy."""


def support(distribution: Distribution, noise: Float[Array, "M ..."], gradient: PolicyGradient) -> Support:
    """Weighted actions that stand for an expectation, by the estimator that is asked for."""
    estimators = {"auto": lambda d, n: d.support(n), "score": score_support, "score-printed": printed_support}
    return estimators[gradient](distribution, noise)


def sampled_support(distribution: Distribution, noise: Float[Array, "M ..."]) -> Support:
    """The actions of this noise, equally weighted."""
    return Support(jax.vmap(distribution.sample)(noise), jnp.full(len(noise), 1 / len(noise), noise.dtype))


def score_support(distribution: Distribution, noise: Float[Array, "M ..."]) -> Support:
    """The score function with two independent actions a and b for every pair of noises.

    The value of Σ weight·g is g(a), and its gradient (g(b) − g(a)) ∇log π(b): g(a) is a baseline, and the
    action that decides the value, perhaps inside φ*, is independent of the one that carries the gradient.
    """
    first, second = noise[: len(noise) // 2], noise[len(noise) // 2 :]
    value, carrier = (jax.lax.stop_gradient(sampled_support(distribution, half)) for half in (first, second))
    score = _score(distribution, carrier.action) * carrier.weight
    return Support(
        jnp.concatenate([value.action, carrier.action]), jnp.concatenate([value.weight - score, score])
    )


def printed_support(distribution: Distribution, noise: Float[Array, "M ..."]) -> Support:
    """The score function as the paper prints it: one action for both, and no baseline.

    The value of Σ weight·g is g(a), and its gradient g(a) ∇log π(a), which is biased inside φ*.
    """
    sampled = jax.lax.stop_gradient(sampled_support(distribution, noise))
    return Support(sampled.action, sampled.weight * (1 + _score(distribution, sampled.action)))


def noises_needed(counts: tuple[int, ...], gradient: PolicyGradient, samples: int) -> int:
    """How many noises `support` takes for an average over `samples` actions; `counts` as in `ActionKind`."""
    if gradient == "auto" and counts and enumerable(counts):
        return 0
    return samples if gradient == "score-printed" or (gradient == "auto" and not counts) else 2 * samples


def enumerable(counts: tuple[int, ...]) -> bool:
    """Whether all joint actions can be summed over."""
    return math.prod(counts) <= LARGEST_ENUMERATION


def joint_actions(counts: tuple[int, ...]) -> Int[np.ndarray, "J D"]:
    """Every combination of categories, a row each."""
    return np.indices(counts, dtype=np.int32).reshape(len(counts), -1).T


def _score(distribution: Distribution, action: Shaped[Array, "M A"]) -> Float[Array, " M"]:
    """log π(a) with its value taken off: 0, with the gradient ∇log π(a)."""
    log_prob = jax.vmap(distribution.log_prob)(action)
    return log_prob - jax.lax.stop_gradient(log_prob)


def gaussian_noise(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """What `DiagonalGaussian.sample` takes."""
    return jax.random.normal(key, shape, jnp.float32)


def gumbel_noise(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """What `Categorical.sample` takes."""
    return jax.random.gumbel(key, shape, jnp.float32)
