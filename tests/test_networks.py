import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_dice.distributions import IMPOSSIBLE
from ppo_dice.networks import CategoricalPolicy, GaussianPolicy, StateValue, init_mlp

KEY = jax.random.key(0)


def test_layers_are_orthogonal_with_the_gains_of_the_paper():
    mlp = init_mlp((8, 64, 64, 3), KEY, activation="tanh", head_gain=0.01)
    for layer, gain in zip(mlp.layers, (np.sqrt(2), np.sqrt(2), 0.01)):
        weight = np.asarray(layer.weight)
        rows, columns = weight.shape
        square = weight @ weight.T if rows <= columns else weight.T @ weight
        np.testing.assert_allclose(square, gain**2 * np.eye(min(rows, columns)), atol=1e-5)
        assert not np.asarray(layer.bias).any()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_network_is_what_its_layers_say(activation):
    mlp = init_mlp((2, 4, 1), KEY, activation=activation, head_gain=1.0)
    x = np.array([0.3, -0.7], np.float32)
    first, head = (np.asarray(layer.weight) for layer in mlp.layers)
    hidden = np.tanh(first @ x) if activation == "tanh" else np.maximum(first @ x, 0)
    np.testing.assert_allclose(mlp(jnp.asarray(x)), head @ hidden, rtol=1e-5)


def test_every_leaf_is_an_array():
    mlp = init_mlp((2, 4, 3), KEY, activation="tanh", head_gain=1.0)
    modules = (
        GaussianPolicy(mlp, jnp.zeros(3)),
        CategoricalPolicy(mlp, (2, 1)),
        StateValue(mlp),
    )
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(modules))


def test_logits_of_several_components_are_laid_out_in_order():
    mlp = init_mlp((1, 5), KEY, activation="tanh", head_gain=1.0)
    flat = mlp(jnp.ones(1))
    logits = CategoricalPolicy(mlp, (2, 3))(jnp.ones(1)).logits
    np.testing.assert_array_equal(logits[0], [flat[0], flat[1], jnp.float32(IMPOSSIBLE)])
    np.testing.assert_array_equal(logits[1], flat[2:])


def test_noise_has_the_shape_that_samples_take():
    mlp = init_mlp((1, 5), KEY, activation="tanh", head_gain=1.0)
    for policy in (CategoricalPolicy(mlp, (2, 3)), GaussianPolicy(mlp, jnp.zeros(5))):
        noise = policy.noise(KEY, (7, 2))
        action = jax.vmap(jax.vmap(policy(jnp.ones(1)).sample))(noise)
        assert action.shape == (7, 2, 2 if isinstance(policy, CategoricalPolicy) else 5)
