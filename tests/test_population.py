import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice import PPO, PPODice
from ppo_dice.population import CompileClock, FusedOverSeeds, OverSeeds, select, stack, unstack

pytestmark = pytest.mark.usefixtures("as_shipped")
TINY = {"n_steps": 64, "n_minibatches": 4, "n_epochs": 2, "hidden_sizes": (16,)}


def leaves(agent, member):
    return [np.asarray(leaf)[member] for leaf in jax.tree.leaves(agent.population.state)]


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
@pytest.mark.parametrize(
    ("algorithm", "env"), [(PPO, "Hopper-v5"), (PPO, "CartPole-v1"), (PPODice, "Hopper-v5")]
)
def test_a_member_of_a_population_is_the_single_run_bit_for_bit(algorithm, env, backend, elsewhere):
    def train(seed, seeds):
        return algorithm(env, seed=seed, seeds=seeds, n_envs=2, backend=backend, workers=0, **TINY).learn(512)

    population, alone, again = train(5, 3), train(6, 1), train(6, 1)
    for ours, single, repeated in zip(leaves(population, 1), leaves(alone, 0), leaves(again, 0)):
        np.testing.assert_array_equal(ours, single)
        np.testing.assert_array_equal(repeated, single)
    assert any((a != b).any() for a, b in zip(leaves(population, 0), leaves(population, 1)))


@pytest.mark.parametrize("env", ["Hopper-v5", "CartPole-v1"])
def test_ppo_dice_without_a_weight_is_the_run_of_ppo_bit_for_bit(env, elsewhere):
    plain = PPO(env, seeds=2, n_envs=2, **TINY).learn(512)
    ours = PPODice(env, seeds=2, n_envs=2, dice={"coefficient": 0.0}, **TINY).learn(512)
    state = ours.population.state
    for a, b in zip(jax.tree.leaves(plain.population.state), jax.tree.leaves(state.ppo), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((np.asarray(leaf) != 0).any() for leaf in jax.tree.leaves(state.discriminator.network))


def test_worker_processes_do_not_change_the_run(elsewhere):
    def train(workers):
        return PPO("Hopper-v5", seeds=2, backend="gymnasium", workers=workers, **TINY).learn(256)

    here, there = train(0), train(2)
    for a, b in zip(leaves(here, 1), leaves(there, 1)):
        np.testing.assert_array_equal(a, b)


def test_stack_and_unstack_are_inverse():
    trees = [{"a": np.arange(3) + k, "b": np.float32(k)} for k in range(4)]
    stacked = stack(trees)
    assert stacked["a"].shape == (4, 3)
    for k, tree in enumerate(unstack(stacked)):
        np.testing.assert_array_equal(tree["a"], trees[k]["a"])
        np.testing.assert_array_equal(select(stacked, k)["b"], trees[k]["b"])


class Scaled(eqx.Module):
    weight: jax.Array
    factor: float = eqx.field(static=True)


@pytest.mark.parametrize("kind", [OverSeeds, FusedOverSeeds])
def test_what_is_static_is_never_mistaken(kind):
    over = kind(lambda module, x: module.weight * module.factor * x, CompileClock())
    x = np.ones(2, np.float32)
    for factor in (2.0, 3.0, 2.0):
        module = Scaled(jnp.ones(2), factor)
        result = over(module, x) if kind is OverSeeds else over.prepare(module, x)(x)
        np.testing.assert_array_equal(result, factor * x)


@pytest.mark.parametrize("kind", [OverSeeds, FusedOverSeeds])
def test_functions_over_seeds_equal_a_loop_and_compile_once(kind):
    clock = CompileClock()
    traces = []

    def function(x, y):
        traces.append(1)
        return {"out": x @ x + y}

    over = kind(function, clock)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 3, 3)).astype(np.float32), np.arange(5, dtype=np.float32)
    for _ in range(2):
        result = over(x, y) if kind is OverSeeds else over.prepare(x, y)(y)
    np.testing.assert_allclose(result["out"], x @ x + y[:, None, None], rtol=1e-5, atol=1e-5)
    assert len(traces) == 1
    assert clock.seconds > 0
