"""The discriminator that trains, a network, against the truth; and what it reads while an agent learns."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ppo_dice import discriminator as dice
from ppo_dice.algorithms import get_algorithm
from ppo_dice.algorithms.ppo import shuffled_rows
from ppo_dice.config import DiceConfig, PPODiceConfig
from ppo_dice.envs import environment_seeds, make_envs
from ppo_dice.presets import preset
from ppo_dice.tabular.estimation import each_environment, gaussian_policy
from ppo_dice.tabular.linear_gaussian import LinearGaussian
from ppo_dice.theory.estimators import as_lists
from ppo_dice.theory.pairs import OLD, SYSTEM, gaussian_pair
from ppo_dice.training import init_population, train
from ppo_dice.types import ActionKind, Key, ObservationKind, Rollout, traced_config

DISTANCES = (0.003, 0.01, 0.03, 0.1, 0.3)
SYSTEMS: Mapping[str, LinearGaussian] = {
    "nearly deterministic": LinearGaussian(a=0.9, b=0.5, noise=0.05, gamma=0.9),
    "stochastic": SYSTEM,
}
VERSIONS: Mapping[str, DiceConfig] = {
    "known ratio": DiceConfig(),
    "from nothing": DiceConfig(known_ratio=False),
    "paper": DiceConfig(
        form="paper", known_ratio=False, recenter=False, action_samples=1, resample_actions=True
    ),
}
"""The default; g without what is known of it; and the paper's form with single sampled actions."""
TASKS = ("Hopper-v5", "HalfCheetah-v5")


class Fitted(NamedTuple):
    """What a fitted network reads, and the sandwich by its own density ratios."""

    divergence: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]


def network(
    distances: Sequence[float] = DISTANCES,
    n_rollouts: int = 6,
    n_steps: int = 2048,
    tasks: Sequence[str] = TASKS,
    iterations: int = 20,
    seed: int = 0,
) -> dict[str, Any]:
    """Estimates beside the truth on two linear systems; readings beside their sandwich in training."""
    points = []
    for name, system in SYSTEMS.items():
        for number, distance in enumerate(distances):
            key = jax.random.fold_in(jax.random.key(seed), number)
            points.append({"system": name, **_point(system, distance, n_rollouts, n_steps, key)})
    training = {task: _readings_in_training(task, iterations, seed) for task in tasks}
    sizes = {"n_rollouts": n_rollouts, "n_steps": n_steps, "iterations": iterations, "seed": seed}
    return {"sizes": sizes, "points": points, "training": training}


def fit_rollout(rollout: Rollout, new: Any, old: Any, key: Key, config: PPODiceConfig) -> Fitted:
    """Fit a fresh network as one iteration of training does, with π' standing still, and read it.

    Policies are triples (K, b₀, σ).
    """
    ours, theirs = gaussian_policy(new), gaussian_policy(old)
    size = rollout.reward.size
    keys = iter(jax.random.split(key, 5))
    behaviour = jax.vmap(theirs)(rollout.obs[:-1].reshape(size, -1))
    batch = dice.make_dice_batch(rollout, theirs, behaviour, next(keys), config)
    state = dice.init_discriminator(ObservationKind(1), ActionKind(size=1), next(keys), config)
    rows = shuffled_rows(next(keys), config).reshape(-1, config.minibatch_size)
    noise = dice.draw_noise(ours, next(keys), rows.shape, config)

    def step(state: dice.DiscriminatorState, inputs: Any) -> tuple[dice.DiscriminatorState, None]:
        rows, noise = inputs
        part = dice.take(batch, rows)
        return dice.fit(state, ours, dice.all_states(part), part, noise, config)[0], None

    state, _ = jax.lax.scan(step, dice.begin_iteration(state, config), (rows, noise))
    fresh = dice.draw_noise(ours, next(keys), (size,), config).draw(0)
    divergence, rows_of_g = dice.read(state.network, ours, dice.all_states(batch), batch, fresh, config)
    after = jax.vmap(ours)(batch.steps.obs)
    ends = dice.whole_batch_certificate(rows_of_g, divergence, after, batch.old, config)
    return Fitted(divergence, ends["dice/lower_bound"], ends["dice/upper_bound"])


def _point(
    system: LinearGaussian, distance: float, n_rollouts: int, n_steps: int, key: Key
) -> dict[str, Any]:
    new, (sampling, fitting) = gaussian_pair(distance, system), jax.random.split(key)
    rollouts = each_environment(system.sample(OLD, n_steps, sampling, n_rollouts))
    parts = system.divergence(new, OLD)
    estimates = {}
    for name, settings in VERSIONS.items():
        config = traced_config(PPODiceConfig(n_steps=n_steps, gamma=system.gamma, dice=settings))
        fits = _fit_all(rollouts, jnp.asarray(new), jax.random.split(fitting, n_rollouts), config)
        estimates[name] = as_lists(fits.divergence)
    upper = parts.action / (1 - system.gamma)
    return {"true": parts.total, "lower": parts.action, "upper": upper, "estimates": estimates}


@jax.jit
def _fit_all(rollouts: Rollout, new: Any, keys: Any, config: PPODiceConfig) -> Fitted:
    fit = partial(fit_rollout, new=new, old=OLD, config=config)
    return jax.lax.map(lambda both: fit(both[0], key=both[1]), (rollouts, keys))


def _readings_in_training(task: str, iterations: int, seed: int) -> list[dict[str, float]]:
    """D̂ and the sandwich of two successive policies, iteration by iteration."""
    algorithm, config = get_algorithm("ppo-dice"), preset("ppo-dice", task)
    envs = make_envs(task, environment_seeds(seed, config.n_envs, segment=0, purpose="train"))
    try:
        population = init_population(algorithm, envs.spec, (seed,), config)
        steps = iterations * config.batch_size
        metrics = [one.metrics[0] for one in train(algorithm, envs, population, config, steps)]
    finally:
        envs.close()
    tags = {
        "estimate": "dice/fresh_divergence",
        "lower": "dice/lower_bound",
        "lower_se": "dice/lower_bound_se",
        "upper": "dice/upper_bound",
        "valid": "dice/valid",
    }
    return [{name: row[tag] for name, tag in tags.items()} for row in metrics]
