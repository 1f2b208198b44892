"""The estimators that are compared, as functions of many rollouts at once."""

from functools import partial
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float

from ppo_dice.chains import Discriminator
from ppo_dice.divergence import kl
from ppo_dice.linear_discriminator import Form, LinearFit, fit_linear
from ppo_dice.tabular.estimation import feature_rows
from ppo_dice.types import Key, Rollout, Scalar


class Estimator(NamedTuple):
    """A form of the objective, and how its rows are made."""

    form: Form
    rows: dict[str, Any]


ESTIMATORS = {
    "averaged": Estimator("difference", {"average_next": True}),
    "difference": Estimator("difference", {}),
    "paper": Estimator("paper", {"sampled": True, "n_noises": 1}),
}
"""The difference form with the successor averaged by regression, the same with the sampled successor, and the
paper's form with sampled actions."""


@partial(jax.jit, static_argnames=("features", "names"))
def fit_rollouts(
    features: Discriminator,
    names: tuple[str, ...],
    rollouts: Rollout,
    policies: tuple[Any, Any],
    gamma: Scalar,
    key: Key,
    ridge: Scalar = 1e-3,
) -> dict[str, LinearFit]:
    """Fit g to every rollout (their first axis) by every estimator named; policies are (π', π)."""

    def fit(inputs: tuple[Rollout, Key]) -> dict[str, LinearFit]:
        rollout, key = inputs
        return {
            name: _fit(features, ESTIMATORS[name], rollout, policies, key, gamma, ridge) for name in names
        }

    return jax.lax.map(fit, (rollouts, jax.random.split(key, rollouts.reward.shape[0])))


def as_lists(values: Float[Array, "..."]) -> Any:
    """Plain numbers, for a file."""
    return jax.device_get(values).tolist()


def _fit(
    features: Discriminator,
    estimator: Estimator,
    rollout: Rollout,
    policies: tuple[Any, Any],
    key: Key,
    gamma: Scalar,
    ridge: Scalar,
) -> LinearFit:
    rows = feature_rows(features, rollout, *policies, key, gamma, **estimator.rows)
    return fit_linear(kl(), rows, ridge, form=estimator.form)
