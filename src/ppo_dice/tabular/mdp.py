"""A finite Markov decision process whose answers are exact, and which is a Gymnasium environment too."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from jaxtyping import Float
from numpy.typing import ArrayLike

from ppo_dice.divergence import get_divergence
from ppo_dice.errors import UserError
from ppo_dice.tabular import chains
from ppo_dice.tabular.chains import Chain, Visitation
from ppo_dice.tabular.objectives import PopulationObjective
from ppo_dice.tabular.sampling import check_sizes, sample_chain
from ppo_dice.tabular.validation import discount, probabilities, read_only, real_array
from ppo_dice.types import Key, Rollout


class Values(NamedTuple):
    """V^π [S], Q^π [S, A], A^π = Q − V [S, A], and J(π) = (1−γ)E_ρ[V^π]."""

    V: Float[np.ndarray, " S"]
    Q: Float[np.ndarray, "S A"]
    A: Float[np.ndarray, "S A"]
    J: float


class TabularMDP(gymnasium.Env[np.int64, np.int64]):
    """P(s'|s,a) [S, A, S], r(s,a) [S, A], ρ(s) [S], γ, and the states whose entry ends an episode.

    Nothing happens after the end: a terminal state leads to itself, its reward is zero whatever `P` and `r`
    say, and no policy acts in it. Two chains say what follows the end of an episode:

    * `absorbing`: the terminal state, for ever. Without terminal states it is simply the chain of P.
    * `restart`: the first state of the next episode, drawn from ρ. No terminal state is ever visited.

    Either may begin elsewhere than in ρ, by `initial`; what a long rollout looks like to an estimator that
    takes every visited state for an initial one is `chain="restart", initial=mdp.stationary(pi_old)`.

    Policies are arrays [S, A]. All numbers are float64.
    """

    def __init__(
        self, P: ArrayLike, r: ArrayLike, rho: ArrayLike, gamma: float, terminal: Iterable[int] = ()
    ) -> None:
        shape = np.shape(r)
        if len(shape) != 2 or 0 in shape:
            raise UserError(f"r must have a shape (states, actions), but has {shape}.")
        n_states, n_actions = shape
        self.gamma = discount(gamma)
        self.terminal = _terminal_states(terminal, n_states)
        self.is_terminal = read_only(np.isin(np.arange(n_states), self.terminal))
        transition = probabilities("P", P, (n_states, n_actions, n_states))
        transition[self.is_terminal] = np.eye(n_states)[self.is_terminal][:, None]
        reward = real_array("r", r, (n_states, n_actions))
        reward[self.is_terminal] = 0.0
        self.P, self.r = read_only(transition), read_only(reward)
        self.rho = read_only(probabilities("rho", rho, (n_states,)))
        if self.rho[self.is_terminal].any():
            raise UserError("rho must be zero in terminal states: no episode begins where it ends.")
        self.observation_space, self.action_space = Discrete(n_states), Discrete(n_actions)
        self._state: np.int64 | None = None

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.rho)

    @property
    def n_actions(self) -> int:
        """A."""
        return self.r.shape[1]

    def copy(self) -> "TabularMDP":
        """The same process as an environment of its own, e.g. `PPO(mdp.copy, n_envs=8)`."""
        return TabularMDP(self.P, self.r, self.rho, self.gamma, self.terminal)

    def policy(self, pi: ArrayLike) -> Float[np.ndarray, "S A"]:
        """Check a policy and return it in float64, uniform in terminal states, where nobody acts."""
        checked = probabilities("The policy", pi, self.r.shape)
        checked[self.is_terminal] = 1 / self.n_actions
        return checked

    def chain(self, name: str = "absorbing", initial: ArrayLike | None = None) -> Chain:
        """The transitions and the initial distribution (ρ where none is given) of a chain."""
        if name not in ("absorbing", "restart"):
            raise UserError(f"There is no chain {name!r}; known are: absorbing, restart.")
        start = self.rho if initial is None else probabilities("initial", initial, self.rho.shape)
        if name == "absorbing":
            return Chain(self.P, start, self.gamma)
        if start[self.is_terminal].any():
            raise UserError("The restart chain visits no terminal state, so initial must be zero there.")
        ending = self.P[..., self.is_terminal].sum(-1, keepdims=True)
        return Chain(np.where(self.is_terminal, 0.0, self.P) + ending * self.rho, start, self.gamma)

    def visitation(
        self, pi: ArrayLike, chain: str = "absorbing", initial: ArrayLike | None = None
    ) -> Visitation:
        """d(s) = (1−γ) Σ γᵗ Pr(s_t = s) [S] and μ(s,a) = d(s) π(a|s) [S, A]."""
        return chains.visitation(self.chain(chain, initial), self.policy(pi))

    def stationary(self, pi: ArrayLike) -> Float[np.ndarray, " S"]:
        """How the states of a long rollout with restarts are distributed, each counted the same [S]."""
        return chains.long_run(self.chain("restart"), self.policy(pi))

    def values(self, pi: ArrayLike) -> Values:
        """V, Q, A and J of a policy."""
        checked = self.policy(pi)
        q = chains.discounted_sum(self.chain(), checked, self.r)
        v = (checked * q).sum(-1)
        return Values(v, q, q - v[:, None], float((1 - self.gamma) * self.rho @ v))

    def objective(
        self,
        pi_new: ArrayLike,
        pi_old: ArrayLike,
        name: str,
        *,
        chain: str = "absorbing",
        initial: ArrayLike | None = None,
        **parameters: float,
    ) -> PopulationObjective:
        """What a discriminator g [S, A] maximises to find D_φ(μ'‖μ), in each of its forms."""
        divergence = get_divergence(name, **parameters)
        return PopulationObjective(
            self.chain(chain, initial), self.policy(pi_new), self.policy(pi_old), divergence
        )

    def divergence(self, pi_new: ArrayLike, pi_old: ArrayLike, name: str, **options: Any) -> float:
        """D_φ(μ'‖μ), infinite where needed support is missing; options are those of `objective`."""
        return self.objective(pi_new, pi_old, name, **options).exact

    def optimal_discriminator(
        self, pi_new: ArrayLike, pi_old: ArrayLike, name: str, **options: Any
    ) -> Float[np.ndarray, "S A"]:
        """g* = (I − γP^{π'})⁻¹ φ'(μ'/μ) [S, A]; options are those of `objective`."""
        return self.objective(pi_new, pi_old, name, **options).optimum()

    def sample(
        self, pi: ArrayLike, steps: int, key: Key, n_envs: int = 1, max_episode_steps: int | None = None
    ) -> Rollout:
        """A rollout from ρ as training would collect it, of one seed: `obs` [T + 1, N, S] is one-hot."""
        check_sizes(steps, n_envs, max_episode_steps)
        return sample_chain(
            self.chain(),
            self.r,
            self.is_terminal,
            self.policy(pi),
            key,
            steps=steps,
            n_envs=n_envs,
            max_episode_steps=max_episode_steps,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Begin an episode in a state drawn from ρ."""
        super().reset(seed=seed)
        self._state = np.int64(self.np_random.choice(self.n_states, p=self.rho))
        return self._state, {}

    def step(self, action: np.int64 | int) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Draw the next state from P; entering a terminal one ends the episode."""
        if self._state is None or self.is_terminal[self._state]:
            raise UserError("Call reset before the first step and after the end of an episode.")
        if not 0 <= action < self.n_actions:
            raise UserError(f"An action is a number from 0 to {self.n_actions - 1}, but is {action}.")
        reward = float(self.r[self._state, action])
        self._state = np.int64(self.np_random.choice(self.n_states, p=self.P[self._state, action]))
        return self._state, reward, bool(self.is_terminal[self._state]), False, {}


def _terminal_states(terminal: Iterable[int], n_states: int) -> tuple[int, ...]:
    states = tuple(sorted({int(state) for state in terminal}))
    for state in states:
        if not 0 <= state < n_states:
            raise UserError(f"terminal must name states from 0 to {n_states - 1}, but names {state}.")
    return states
