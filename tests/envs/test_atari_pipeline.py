"""What the pipeline does in the steps that no policy chose, on a game whose every step is written down."""

from contextlib import nullcontext
from typing import Any

import numpy as np

from ppo_dice.atari_settings import AtariSettings
from ppo_dice.envs.atari_pipeline import AtariEnvironments, Seen


class Written:
    """One copy of games that are lists of (points, lives after, game over); pictures count the steps."""

    n_actions, backend, engine = 6, "written", "a list"

    def __init__(self, *games: list[tuple[float, int, bool]]) -> None:
        self.games, self.game, self.place, self.pressed = games, -1, 0, []

    def start(self) -> Seen:
        self.game = -1
        return self.restart(np.array([0]))

    def restart(self, copies: Any) -> Seen:
        self.game, self.place = self.game + 1, 0
        return self.seen(0.0, 3, False)

    def step(self, copies: Any, actions: Any) -> Seen:
        self.pressed.append(int(actions[0]))
        self.place += 1
        return self.seen(*self.games[self.game][self.place - 1])

    def seen(self, points: float, lives: int, over: bool) -> Seen:
        picture = np.full((1, 84, 84), 10 * self.game + self.place, np.uint8)
        return Seen(picture, np.array([points]), np.array([lives]), np.array([over]))

    def stepping(self) -> Any:
        return nullcontext()

    def close(self) -> None:
        pass


ON, LOST, OVER = (0.0, 3, False), (0.0, 2, False), (0.0, 0, True)


def pipeline(*games: list[tuple[float, int, bool]], **settings: Any) -> AtariEnvironments:
    return AtariEnvironments("Pong-v5", "pong", AtariSettings(**settings), Written(*games), 1)


def pictures(obs: np.ndarray) -> list[int]:
    return obs.reshape(4, 84, 84)[:, 0, 0].tolist()


def step(envs: AtariEnvironments) -> Any:
    return envs.step(np.full((1, 1), 5, np.int32))


def test_a_lost_life_is_followed_by_a_no_op_fire_and_the_third_action() -> None:
    envs = pipeline([ON, ON, ON, LOST, LOST, LOST, LOST, LOST])
    assert pictures(envs.reset()) == [2] * 4  # after FIRE and the third action
    assert pictures(step(envs).obs) == [2, 2, 2, 3]
    lost = step(envs)
    assert (lost.terminated[0], lost.truncated[0], lost.over[0]) == (True, False, False)
    assert (pictures(lost.final_obs), pictures(lost.obs)) == ([2, 2, 3, 4], [7] * 4)
    assert not step(envs).ended[0]  # as many lives as before
    assert envs._emulators.pressed == [1, 2, 5, 5, 0, 1, 2, 5]


def test_points_without_a_policy_count_in_the_next_step_and_are_not_learned_from() -> None:
    envs = pipeline([(4.0, 3, False), ON, (7.0, 3, False), LOST, (20.0, 2, False), LOST, LOST, LOST])
    envs.reset()
    steps = [step(envs) for _ in range(3)]
    assert [one.score[0] for one in steps] == [11.0, 0.0, 20.0]
    assert [one.reward[0] for one in steps] == [1.0, 0.0, 0.0]


def test_a_game_that_ends_after_a_lost_life_is_over_in_that_step() -> None:
    envs = pipeline([ON, ON, (1.0, 2, False), LOST, (30.0, 0, True)], [ON, ON, ON, ON])
    envs.reset()
    lost = step(envs)
    assert (lost.terminated[0], lost.over[0], lost.score[0], lost.reward[0]) == (True, True, 31.0, 1.0)
    assert pictures(lost.obs) == [11] * 4  # the second game, after what was left to press
    assert step(envs).score[0] == 0.0


def test_a_game_that_ends_before_anyone_plays_it_leaves_no_trace() -> None:
    envs = pipeline([ON, ON, (1.0, 0, True)], [(50.0, 0, True)], [ON, (2.0, 3, False)])
    envs.reset()
    over = step(envs)
    assert (over.over[0], over.score[0]) == (True, 1.0)
    assert pictures(over.obs) == [21] * 4
    assert step(envs).score[0] == 2.0


def test_the_limit_counts_steps_of_the_policy_over_all_lives() -> None:
    envs = pipeline([ON, ON, ON, LOST, LOST, LOST, LOST, LOST], [ON] * 5, [ON] * 2, max_episode_steps=3)
    envs.reset()
    said = [step(envs) for _ in range(5)]
    assert [one.terminated[0] for one in said] == [False, True, False, False, False]
    assert (
        [one.truncated[0] for one in said]
        == [one.over[0] for one in said]
        == [False] * 2 + [True] + [False] * 2
    )
    assert step(envs).truncated[0]


def test_a_life_lost_at_the_limit_ends_the_game() -> None:
    envs = pipeline([ON, ON, LOST], [ON] * 3, max_episode_steps=1)
    envs.reset()
    lost = step(envs)
    assert (lost.terminated[0], lost.truncated[0], lost.over[0]) == (True, True, True)
    assert pictures(lost.obs) == [12] * 4


def test_without_episodic_life_nothing_happens_when_a_life_is_lost() -> None:
    envs = pipeline([ON, ON, LOST, LOST, OVER], [ON, ON], episodic_life=False)
    envs.reset()
    said = [step(envs) for _ in range(3)]
    assert [one.terminated[0] for one in said] == [one.over[0] for one in said] == [False, False, True]
