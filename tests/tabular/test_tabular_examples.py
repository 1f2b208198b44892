import numpy as np
import pytest

from ppo_dice.errors import UserError
from ppo_dice.tabular import (
    aliased_ledge,
    aliased_ledge_policy,
    four_rooms,
    garnet,
    performance_bounds,
    river_swim,
)


def greedy_value(mdp, sweeps=5000):
    value = np.zeros(mdp.n_states)
    for _ in range(sweeps):
        value = (mdp.r + mdp.gamma * mdp.P @ value).max(1)
    return value


def test_a_garnet_branches_as_often_as_it_should():
    mdp = garnet(10, 3, 4, 0.95, seed=0, n_terminal=2)
    assert ((mdp.P > 0).sum(-1)[:8] == 4).all()
    assert mdp.terminal == (8, 9)
    assert mdp.rho[:8].min() > 0 == mdp.rho[8:].max()
    np.testing.assert_array_equal(mdp.P[8, :, 8], 1)
    np.testing.assert_array_equal(mdp.r[8:], 0)
    np.testing.assert_array_equal(mdp.P, garnet(10, 3, 4, 0.95, seed=0, n_terminal=2).P)
    assert (mdp.P != garnet(10, 3, 4, 0.95, seed=1, n_terminal=2).P).any()


def test_the_deterministic_twin_differs_only_in_its_certainty():
    mdp, twin = (garnet(10, 3, 4, 0.95, seed=0, deterministic=certain) for certain in (False, True))
    np.testing.assert_array_equal(twin.P.argmax(-1), mdp.P.argmax(-1))
    assert set(np.unique(twin.P)) == {0, 1}
    np.testing.assert_array_equal(twin.r, mdp.r)
    np.testing.assert_array_equal(twin.rho, mdp.rho)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: garnet(3, 2, 4, 0.9, 0), "branching must be from 1 to the 3 states, but is 4"),
        (lambda: garnet(3, 2, 2, 0.9, 0, n_terminal=3), "n_terminal must be from 0 to 2, but is 3"),
        (lambda: garnet(0, 2, 2, 0.9, 0), "n_states must be at least 1"),
        (lambda: four_rooms(slip=1.5), "slip must be a probability, but is 1.5"),
        (lambda: river_swim(1), "n_states must be at least 2, but is 1"),
        (lambda: aliased_ledge_policy(-0.1), "go must be a probability, but is -0.1"),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_the_ledge_is_best_walked_with_a_tenth_of_going():
    mdp = aliased_ledge()
    going = np.linspace(0, 1, 1001)
    performance = [mdp.values(aliased_ledge_policy(go)).J for go in going]
    assert max(performance) == pytest.approx(0.11882, abs=5e-6)
    assert going[np.argmax(performance)] == pytest.approx(0.101, abs=1e-9)
    assert performance[0] == pytest.approx(0.1, abs=1e-12)  # staying at home for ever
    assert performance[20] > performance[0] > performance[300]  # too timid, and too bold


def test_on_the_ledge_the_surrogate_promises_what_it_cannot_keep():
    # From p = .1 the surrogate L rises with p, though J is already at its best.
    mdp = aliased_ledge()
    bounds = performance_bounds(mdp, aliased_ledge_policy(0.3), aliased_ledge_policy(0.02))
    assert bounds.surrogate > bounds.J_old > bounds.J_new


def test_four_rooms_are_walked_by_the_shortest_way():
    mdp = four_rooms(gamma=0.9, slip=0.0)
    assert (mdp.n_states, mdp.n_actions) == (104, 4)
    assert (mdp.rho > 0).sum() == 25
    value = greedy_value(mdp, 100)
    # From the upper left corner (1, 1) to (11, 11) through the doors: 20 moves, the last of which pays.
    assert value[0] == pytest.approx(0.9**19)
    assert greedy_value(four_rooms(0.9, slip=0.2), 100)[0] < value[0]


def test_swimming_up_the_river_is_worth_it():
    mdp = river_swim()
    left, right = (np.eye(2)[np.full(6, action)] for action in range(2))
    np.testing.assert_allclose(mdp.values(left).J, 0.005)  # at the shore for ever
    assert mdp.values(right).J > 10 * mdp.values(left).J
    np.testing.assert_allclose(mdp.P[2, 1], [0, 0.05, 0.6, 0.35, 0, 0], atol=1e-15)
    np.testing.assert_allclose(mdp.P[5, 1], [0, 0, 0, 0, 0.4, 0.6], atol=1e-15)
    np.testing.assert_allclose(mdp.P[0, 1], [0.4, 0.6, 0, 0, 0, 0], atol=1e-15)
