import jax
import numpy as np

from ppo_dice.minibatch import epoch_minibatches


def test_every_row_comes_once_in_an_order_that_the_key_decides():
    rows = epoch_minibatches(jax.random.key(0), 24, 6)
    assert rows.shape == (6, 4)
    np.testing.assert_array_equal(np.sort(rows.ravel()), np.arange(24))
    assert (rows != epoch_minibatches(jax.random.key(1), 24, 6)).any()
