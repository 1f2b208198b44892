"""What a policy puts out: distributions over one action, as small values.

Everything is for a single state; callers `vmap`. Sampling is split in two: noise is drawn ahead, for a whole
rollout in one call, and `sample(noise)` is cheap arithmetic. The same noise given to two policies couples
their samples, which is what reparametrised estimators want.
"""

from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ppo_dice.errors import UserError
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

    def support(self, noise: Float[Array, "M ..."]) -> tuple[Shaped[Array, "J A"], Float[Array, " J"]]:
        """Actions and weights whose weighted sum stands for an expectation, differentiable in the policy."""
        ...


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

    def support(self, noise: Float[Array, "M A"]) -> tuple[Float[Array, "M A"], Float[Array, " M"]]:
        """The reparametrised samples of this noise, equally weighted."""
        return jax.vmap(self.sample)(noise), jnp.full(len(noise), 1 / len(noise), self.mean.dtype)


class Categorical(eqx.Module):
    """Independent categorical variables, one per component of the action.

    Discrete spaces have one component, MultiDiscrete several, MultiBinary one of two categories per bit.
    Rows with fewer categories than the widest are padded with IMPOSSIBLE.
    """

    logits: Float[Array, "D K"]

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

    def support(self, noise: Any) -> tuple[Int[Array, "J D"], Float[Array, " J"]]:
        """Every joint action with its probability; nothing is left to the noise."""
        joint = joint_actions(*self.logits.shape)
        components = jnp.arange(joint.shape[1])
        return jnp.asarray(joint), jnp.exp(jnp.sum(self.log_probs[components, joint], axis=-1))

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


def joint_actions(n_components: int, n_categories: int) -> Int[np.ndarray, "J D"]:
    """Every combination of categories, a row each."""
    count = n_categories**n_components
    if count > LARGEST_ENUMERATION:
        raise UserError(
            f"{count:,} joint actions are too many to sum over; at most {LARGEST_ENUMERATION} are supported."
        )
    grid = np.indices((n_categories,) * n_components, dtype=np.int32)
    return grid.reshape(n_components, -1).T


def gaussian_noise(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """What `DiagonalGaussian.sample` takes."""
    return jax.random.normal(key, shape, jnp.float32)


def gumbel_noise(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """What `Categorical.sample` takes."""
    return jax.random.gumbel(key, shape, jnp.float32)
