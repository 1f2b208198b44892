"""How far an iteration moved the policy, measured the same way for every algorithm."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from ppo_dice.distributions import Distribution
from ppo_dice.types import Metrics

LARGEST_LOG_RATIO = 80.0
"""Where the reported ratio saturates (e⁸⁰ ≈ 6·10³⁴), for a diagnostic must not overflow."""


def policy_change(before: Distribution, after: Distribution, action: Shaped[Array, "B A"]) -> Metrics:
    """Compare two policies on the states of a batch (leaves have a leading B) and the actions of `before`.

    * `policy/kl_old_new` is E KL(π‖π'), `policy/kl_new_old` is E KL(π'‖π), both in closed form per state;
    * `policy/max_kl_new_old` is the largest KL(π'‖π) of any state of the batch;
    * `policy/max_ratio` is the largest max(κ, 1/κ) of any sampled action, κ = π'(a|s)/π(a|s);
    * `policy/entropy` is E H(π').
    """
    kl_new_old = jax.vmap(lambda old, new: new.kl_divergence(old))(before, after)
    log_ratio = jax.vmap(lambda old, new, a: new.log_prob(a) - old.log_prob(a))(before, after, action)
    return {
        "policy/kl_old_new": jnp.mean(jax.vmap(lambda old, new: old.kl_divergence(new))(before, after)),
        "policy/kl_new_old": jnp.mean(kl_new_old),
        "policy/max_kl_new_old": jnp.max(kl_new_old),
        "policy/max_ratio": jnp.exp(jnp.minimum(jnp.max(jnp.abs(log_ratio)), LARGEST_LOG_RATIO)),
        "policy/entropy": jnp.mean(jax.vmap(lambda new: new.entropy())(after)),
    }
