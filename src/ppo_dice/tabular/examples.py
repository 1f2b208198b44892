"""Finite processes worth knowing: random ones by the hundred, and three with a story."""

import numpy as np
from jaxtyping import Float

from ppo_dice.errors import UserError
from ppo_dice.tabular.mdp import TabularMDP
from ppo_dice.tabular.validation import positive_count

STAY, GO = 0, 1

_FOUR_ROOMS = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #    G#
#############
"""
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right


def garnet(
    n_states: int,
    n_actions: int,
    branching: int,
    gamma: float,
    seed: int,
    deterministic: bool = False,
    n_terminal: int = 0,
) -> TabularMDP:
    """A random process: every pair leads to `branching` states, in shares uniform on the simplex.

    Rewards are standard normal, ρ is uniform on the simplex of the states that are not terminal, and the last
    `n_terminal` states are. `deterministic` makes the likeliest successor of every pair certain, and leaves
    everything else as it was.
    """
    for name, count in (("n_states", n_states), ("n_actions", n_actions)):
        positive_count(name, count)
    if not 1 <= branching <= n_states:
        raise UserError(f"branching must be from 1 to the {n_states} states, but is {branching}.")
    if not 0 <= n_terminal < n_states:
        raise UserError(f"n_terminal must be from 0 to {n_states - 1}, but is {n_terminal}.")
    rng = np.random.default_rng(seed)
    transition = _random_transition(rng, n_states, n_actions, branching)
    if deterministic:
        transition = np.eye(n_states)[transition.argmax(-1)]
    rho = np.zeros(n_states)
    rho[: n_states - n_terminal] = rng.dirichlet(np.ones(n_states - n_terminal))
    terminal = range(n_states - n_terminal, n_states)
    return TabularMDP(transition, rng.standard_normal((n_states, n_actions)), rho, gamma, terminal)


def random_policy(mdp: TabularMDP, seed: int, concentration: float = 1.0) -> Float[np.ndarray, "S A"]:
    """A policy whose rows are drawn from a Dirichlet distribution, uniform on the simplex where it is 1."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(mdp.n_actions, concentration), mdp.n_states)


def aliased_ledge(gamma: float = 0.95) -> TabularMDP:
    """Home, a ledge and a pit, with the actions stay and go: careful steps are worth more than bold ones.

    Home and ledge look the same to a policy of one parameter (`aliased_ledge_policy`). At home staying pays
    .1; going pays .3 and leads to the ledge. There staying pays .3 and leads home; going falls into the pit,
    which pays nothing and is left for home with probability .02 a step.
    """
    home, ledge, pit = range(3)
    transition, reward = np.zeros((3, 2, 3)), np.zeros((3, 2))
    transition[home, STAY, home], reward[home, STAY] = 1.0, 0.1
    transition[home, GO, ledge], reward[home, GO] = 1.0, 0.3
    transition[ledge, STAY, home], reward[ledge, STAY] = 1.0, 0.3
    transition[ledge, GO, pit] = 1.0
    transition[pit, :, home], transition[pit, :, pit] = 0.02, 0.98
    return TabularMDP(transition, reward, np.eye(3)[home], gamma)


def aliased_ledge_policy(go: float) -> Float[np.ndarray, "S A"]:
    """The policy that goes with the same probability at home and on the ledge; in the pit nothing matters."""
    if not 0 <= go <= 1:
        raise UserError(f"go must be a probability, but is {go}.")
    return np.array([[1 - go, go], [1 - go, go], [0.5, 0.5]])


def four_rooms(gamma: float = 0.99, slip: float = 0.1) -> TabularMDP:
    """Four rooms joined by four doors; reaching the far corner pays 1 and ends the episode.

    Actions are up, down, left and right. With probability `slip` the move is one of the four at random; walls
    stop it. Episodes begin anywhere in the upper left room.
    """
    if not 0 <= slip <= 1:
        raise UserError(f"slip must be a probability, but is {slip}.")
    rows = _FOUR_ROOMS.split("\n")[1:-1]
    cells = [(y, x) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark != "#"]
    number = {cell: state for state, cell in enumerate(cells)}
    goal = next(state for state, (y, x) in enumerate(cells) if rows[y][x] == "G")
    certain = np.zeros((len(cells), len(_MOVES), len(cells)))
    for state, (y, x) in enumerate(cells):
        for action, (down, right) in enumerate(_MOVES):
            certain[state, action, number.get((y + down, x + right), state)] = 1.0
    transition = (1 - slip) * certain + slip * certain.mean(1, keepdims=True)
    rho = np.array([y < 6 and x < 6 for y, x in cells], np.float64)
    return TabularMDP(transition, transition[..., goal], rho / rho.sum(), gamma, [goal])


def river_swim(n_states: int = 6, gamma: float = 0.95) -> TabularMDP:
    """A river to swim up: drifting left is safe and pays .005 at the shore, the far right pays 1.

    Action 1 swims right. It advances with probability .35 (.6 from the shore) and is thrown back with .05 (.4
    from the far right); otherwise it stays. Episodes begin at the shore and never end. After Strehl and
    Littman (2008).
    """
    if n_states < 2:
        raise UserError(f"n_states must be at least 2, but is {n_states}.")
    last, (left, right) = n_states - 1, range(2)
    transition, reward = np.zeros((n_states, 2, n_states)), np.zeros((n_states, 2))
    for state in range(n_states):
        transition[state, left, max(state - 1, 0)] = 1.0
        advance = 0.6 if state == 0 else 0.35 if state < last else 0.0
        thrown_back = 0.0 if state == 0 else 0.05 if state < last else 0.4
        transition[state, right, min(state + 1, last)] += advance
        transition[state, right, max(state - 1, 0)] += thrown_back
        transition[state, right, state] += 1 - advance - thrown_back
    reward[0, left], reward[last, right] = 0.005, 1.0
    return TabularMDP(transition, reward, np.eye(n_states)[0], gamma)


def _random_transition(
    rng: np.random.Generator, n_states: int, n_actions: int, branching: int
) -> Float[np.ndarray, "S A S"]:
    transition = np.zeros((n_states, n_actions, n_states))
    successors = rng.permuted(np.tile(np.arange(n_states), (n_states, n_actions, 1)), axis=-1)[
        ..., :branching
    ]
    shares = rng.dirichlet(np.ones(branching), (n_states, n_actions))
    np.put_along_axis(transition, successors, shares, -1)
    return transition
