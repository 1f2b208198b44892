"""Atari's pipeline: what it promises on both backends, against a plain reference on the bare emulator."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from atari_reference import Reference
from env_probes import equal, stream

from ppo_dice.atari_games import GAMES, WITHOUT_FIRE_RESET, ale_id, envpool_id, game_of
from ppo_dice.atari_settings import AtariSettings, describe
from ppo_dice.envs import Environments, environment_seeds, list_environments, make_envs
from ppo_dice.errors import UserError
from ppo_dice.rollout import collect, start

ale_py = pytest.importorskip("ale_py")
envpool = pytest.importorskip("envpool")

BACKENDS = ["envpool", "ale"]
PAPER = """
AirRaid Asterix Asteroids Atlantis BankHeist BattleZone Carnival ChopperCommand DoubleDunk Enduro Freeway
Frostbite Gopher Kangaroo Phoenix Robotank Seaquest TimePilot Zaxxon
"""


def random_actions(envs: Environments, steps: int, *, alike: bool = False) -> np.ndarray:
    columns = 1 if alike else envs.num_envs
    actions = np.random.default_rng(0).integers(
        0, envs.spec.action_space.n, (steps, columns, 1), dtype=np.int32
    )
    return np.broadcast_to(actions, (steps, envs.num_envs, 1))


def stacks(obs: np.ndarray) -> np.ndarray:
    assert obs.dtype == np.uint8
    return obs.reshape(-1, 4, 84, 84)


def n_distinct(pictures: np.ndarray) -> int:
    return len({picture.tobytes() for picture in pictures})


# With noop_max=1 every game begins alike: after one no-op on EnvPool and none on ale-py. EnvPool cuts screens
# off after 210 rows.
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("game", "frame_skip", "steps"),
    [("breakout", 4, 300), ("freeway", 4, 40), ("air_raid", 4, 80), ("pong", 1, 150)],
)
def test_every_step_is_that_of_the_reference(game: str, frame_skip: int, steps: int, backend: str) -> None:
    noops, rows = (1, 210) if backend == "envpool" else (0, None)
    reference = Reference(game, noops=noops, frame_skip=frame_skip, rows=rows)
    env_kwargs = {"noop_max": 1, "frame_skip": frame_skip}
    envs = make_envs(envpool_id(game), [5], backend=backend, env_kwargs=env_kwargs)
    assert envs.spec.action_space.n == len(reference.actions)
    stack = stacks(envs.reset())
    same_picture(stack[0], np.stack([reference.reset()] * 4))
    lives = games = 0
    for action in random_actions(envs, steps):
        step, expected = envs.step(action), reference.step(int(action[0, 0]))
        assert step.reward[0] == expected.reward
        assert step.score[0] == expected.score
        assert step.terminated[0] == expected.terminated
        assert step.over[0] == expected.over
        assert not step.truncated[0]
        final, stack_before, stack = stacks(step.final_obs), stack, stacks(step.obs)
        np.testing.assert_array_equal(final[0, :3], stack_before[0, 1:])
        if expected.picture is not None:
            same_picture(final[0, 3], expected.picture)
        if expected.first_picture is not None:
            same_picture(stack[0], np.stack([expected.first_picture] * 4))
        else:
            np.testing.assert_array_equal(step.obs, step.final_obs)
        lives, games = lives + expected.terminated, games + expected.over
    if game == "breakout":
        assert games >= 1
        assert lives >= 5 * games


def same_picture(seen: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(seen - expected).max() < 0.5 + 1e-6  # rounded to whole grey levels


@pytest.mark.parametrize("game", ["Breakout", "Pong"])
def test_the_backends_agree_to_the_last_bit_from_the_same_state(game: str) -> None:
    env_kwargs = {"noop_max": 1, "frame_skip": 1, "fire_reset": False}
    one, other = (make_envs(f"{game}-v5", [3], backend=b, env_kwargs=env_kwargs) for b in BACKENDS)
    obs, _ = stacks(one.reset()), other.reset()
    catching_up = other.step(np.zeros((1, 1), np.int32))  # the no-op with which EnvPool begins
    np.testing.assert_array_equal(obs[:, -1], stacks(catching_up.obs)[:, -1])
    for place, action in enumerate(random_actions(one, 400)):
        left, right = one.step(action), other.step(action)
        common = np.s_[:, 3 - min(place, 3) :]  # until the stacks are filled, their oldest pictures differ
        np.testing.assert_array_equal(stacks(left.final_obs)[common], stacks(right.final_obs)[common])
        assert equal([*left[1:4], *left[5:]], [*right[1:4], *right[5:]])
        if left.ended.any():
            break
    assert place > 50


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_game_that_is_cut_is_truncated_and_over(backend: str) -> None:
    envs = make_envs("Pong-v5", [0, 1], backend=backend, env_kwargs={"max_episode_steps": 7})
    assert envs.spec.max_episode_steps == 7
    obs = stacks(envs.reset())
    for count, action in enumerate(random_actions(envs, 21), start=1):
        step = envs.step(action)
        np.testing.assert_array_equal(stacks(step.final_obs)[:, :3], obs[:, 1:])
        cut = count % 7 == 0
        assert step.truncated.tolist() == step.over.tolist() == [cut] * 2
        assert not step.terminated.any()
        obs = stacks(step.obs)
        assert (obs == obs[:, :1]).all() == cut  # a new game: its first picture four times


@pytest.mark.parametrize("backend", BACKENDS)
def test_games_begin_with_different_numbers_of_no_ops(backend: str) -> None:
    def beginnings(noop_max: int) -> int:
        env_kwargs = {"noop_max": noop_max, "max_episode_steps": 1}  # every step begins a game
        envs = make_envs("Freeway-v5", [0], backend=backend, env_kwargs=env_kwargs)
        pictures = [envs.reset(), *(envs.step(action).obs for action in random_actions(envs, 15))]
        return n_distinct(np.stack(pictures))

    assert beginnings(noop_max=30) > 6
    assert beginnings(noop_max=1) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_seeds_give_equal_streams_and_copies_are_independent(backend: str) -> None:
    def run(seeds: list[int]) -> list[np.ndarray]:
        env_kwargs = {"sticky_actions": 0.25, "max_episode_steps": 15}
        envs = make_envs("Breakout-v5", seeds, backend=backend, env_kwargs=env_kwargs)
        said = play(envs)
        assert equal(said, play(envs))  # a pool that is reset starts over
        return said

    def play(envs: Environments) -> list[np.ndarray]:
        said = [envs.reset()]
        for action in random_actions(envs, 40, alike=True):
            said.extend(part for part in envs.step(action) if part is not None)
        return said

    first, more = run([3, 4]), run([3, 4, 5])
    assert equal(first, [part[:2] for part in more])
    assert not equal([part[:1] for part in first], [part[1:] for part in first])


@pytest.mark.parametrize("backend", BACKENDS)
def test_sticky_actions_are_all_that_is_random_after_the_no_ops(backend: str) -> None:
    def endings(sticky_actions: float) -> int:
        env_kwargs = {"sticky_actions": sticky_actions, "noop_max": 1}
        envs = make_envs("Breakout-v5", [1, 2], backend=backend, env_kwargs=env_kwargs)
        envs.reset()
        for action in random_actions(envs, 30, alike=True):
            step = envs.step(action)
        return n_distinct(step.obs)

    assert endings(0.0) == 1
    assert endings(0.5) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_episodic_life_and_clipping_learning_gets_what_is_reported(backend: str) -> None:
    env_kwargs = {"episodic_life": False, "clip_rewards": False}
    envs = make_envs("Asteroids-v5", environment_seeds(0, 2), backend=backend, env_kwargs=env_kwargs)
    envs.reset()
    points = 0.0
    for action in random_actions(envs, 150):
        step = envs.step(action)
        np.testing.assert_array_equal(step.terminated | step.truncated, step.over)
        points = max(points, step.reward.max())
    assert points > 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_record_is_of_whole_games_in_points(backend: str) -> None:
    envs = make_envs(
        "Breakout-v5", environment_seeds(0, 2), backend=backend, env_kwargs={"max_episode_steps": 200}
    )
    actions = random_actions(envs, 250)
    collected = collect(envs, start(envs), lambda obs, t: actions[t].reshape(2, 1, 1), 250, (0, 1))
    rollout, episodes = collected.rollout, collected.episodes
    assert rollout.obs.dtype == np.uint8
    assert set(np.unique(rollout.reward)) <= {-1.0, 0.0, 1.0}
    assert rollout.ended.sum() > 4 * len(episodes) > 0  # five lives a game
    assert max(episode.length for episode in episodes) <= 200
    first = {(e.member, e.env): e for e in reversed(episodes)}
    for (member, env), episode in first.items():
        steps = np.s_[member, : episode.step + 1, env]
        assert episode.length == episode.step + 1
        assert episode.ret >= rollout.reward[steps].sum()  # a brick has 1, 4 or 7 points
    # what is learned from begins anew after every life
    began = np.zeros_like(rollout.elapsed, dtype=bool)
    began[:, 1:] = rollout.ended[:, :-1]
    began[:, 0] = True
    np.testing.assert_array_equal(rollout.elapsed == 0, began)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("game", PAPER.split())
def test_every_game_of_the_paper_can_be_played(game: str, backend: str) -> None:
    envs = make_envs(f"{game}-v5", [0], backend=backend)
    said = stream(envs, 100)
    assert (envs.spec.backend, envs.spec.max_episode_steps) == (backend, 27_000)
    assert n_distinct(np.concatenate([stacks(part)[:, -1] for part in said if part.dtype == np.uint8])) > 40


def test_every_way_to_say_it_means_the_same() -> None:
    for env_id in ("Pong-v5", "ALE/Pong-v5", "PongNoFrameskip-v4", "ale_py:ALE/Pong-v5"):
        assert game_of(env_id) == "pong"
        assert make_envs(env_id, [0]).spec.backend == "envpool"
    specs = [make_envs("ALE/Pong-v5", [0], backend=backend).spec for backend in (*BACKENDS, "gymnasium")]
    assert [spec.backend for spec in specs] == ["envpool", "ale", "ale"]
    assert specs[0].pipeline == specs[1].pipeline
    assert specs[0].observation_space == specs[1].observation_space
    assert game_of("ALE/Pong-ram-v5") is game_of("Hopper-v5") is game_of(gymnasium.make) is None


def test_the_games_are_those_of_both_libraries() -> None:
    families = envpool.registration.registry.specs
    assert {envpool_id(game) for game in GAMES} == {
        env_id for env_id in envpool.list_all_envs() if families[env_id][0] == "envpool.atari"
    }
    gymnasium.register_envs(ale_py)
    assert {ale_id(game) for game in GAMES} == {
        name for name in gymnasium.registry if name.startswith("ALE/")
    }
    for game in (*WITHOUT_FIRE_RESET, "pong", "breakout", "adventure", "zaxxon"):
        emulator = ale_py.ALEInterface()
        emulator.loadROM(ale_py.roms.get_rom_path(game))
        names = [action.name for action in emulator.getMinimalActionSet()]
        assert (game in WITHOUT_FIRE_RESET) == (names[:2] != ["NOOP", "FIRE"])


def test_both_ids_are_listed_with_the_backends_that_run_them() -> None:
    listed = dict(list_environments())
    assert listed["Pong-v5"] == listed["ALE/Pong-v5"] == ("envpool", "ale")


def test_the_full_set_of_actions_has_fire_in_every_game() -> None:
    for backend in BACKENDS:
        envs = make_envs("Freeway-v5", [0], backend=backend, env_kwargs={"full_action_space": True})
        assert envs.spec.action_space.n == 18
        assert envs.spec.pipeline["fire_reset"]
        assert not make_envs("Freeway-v5", [0], backend=backend).spec.pipeline["fire_reset"]


def test_the_pipeline_is_told_in_a_line() -> None:
    pipeline = make_envs("Pong-v5", [0]).spec.pipeline
    assert describe(pipeline) == (
        "no sticky actions, frame skip 4 with the maximum of the last two, up to 30 no-ops, FIRE at the "
        "start, a lost life ends the training episode, 84×84 grey, stack 4, signs of rewards, at most 27,000 "
        "steps a game"
    )
    assert "sticky actions 0.25" in describe({**pipeline, "sticky_actions": 0.25})
    assert AtariSettings(frame_skip=3).limit == 36_000


MISTAKES = [
    ({"env_kwargs": {"frameskip": 2}}, "no setting 'frameskip'; did you mean frame_skip?"),
    ({"env_kwargs": {"repeat_action_probability": 0.25}}, "did you mean sticky_actions?"),
    ({"env_kwargs": {"xyz": 2}}, "no setting 'xyz'; known are: sticky_actions, frame_skip,"),
    ({"env_kwargs": {"sticky_actions": 1.5}}, r"sticky_actions must be in \[0, 1\), but is 1.5."),
    ({"env_kwargs": {"noop_max": 0}}, "noop_max must be at least 1, but is 0."),
    ({"env_kwargs": {"max_episode_steps": 0}}, "max_episode_steps must be at least 1"),
    ({"workers": 2}, "Atari's emulators use threads"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("options", "sentence"), MISTAKES)
def test_every_mistake_gets_one_sentence(options: dict[str, Any], sentence: str, backend: str) -> None:
    with pytest.raises(UserError, match=sentence):
        make_envs("Pong-v5", [0], backend=backend, **options)


def test_what_ale_does_not_run_is_refused() -> None:
    with pytest.raises(
        UserError, match="The backend ale runs Atari's games only, by their id, and not Hopper-v5"
    ):
        make_envs("Hopper-v5", [0], backend="ale")
    with pytest.raises(UserError, match=r"did you mean .*ALE/Pong-v5"):
        make_envs("ALE/Pogn-v5", [0])


@pytest.mark.parametrize(
    ("missing", "backend", "outcome"),
    [
        (("envpool",), "auto", "runs on ale"),
        (("ale_py",), "auto", "runs on envpool"),
        (("ale_py",), "gymnasium", "ale-py cannot be imported"),
        (
            ("envpool", "ale_py"),
            "auto",
            "ALE/Pong-v5 needs EnvPool or ale-py; run: pip install 'ppo-dice[atari]'",
        ),
        (("envpool",), "envpool", "EnvPool cannot be imported"),
    ],
)
def test_one_of_the_two_libraries_is_enough(missing: tuple[str, ...], backend: str, outcome: str) -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing!r}))  # as if they were not installed
from ppo_dice.envs import list_environments, make_envs
print([where for name, where in list_environments() if name == "ALE/Pong-v5"])
print("runs on", make_envs("ALE/Pong-v5", [0], backend={backend!r}).spec.backend)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome in (result.stdout + result.stderr).splitlines()[-1]
