"""Films of agents: real ones, read back from the disk."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from imageio_ffmpeg import get_ffmpeg_exe

from ppo_dice import PPO, cli, load
from ppo_dice.callbacks import FilmCallback
from ppo_dice.errors import UserError

PROGRAM = Path(sys.executable).with_name("ppo-dice")
TINY = {"n_envs": 1, "n_steps": 64, "n_minibatches": 2, "n_epochs": 1, "hidden_sizes": (8,)}
TINY_OPTIONS = ["--n-envs", "1", "--n-steps", "64", "--n-minibatches", "2", "--hidden-sizes", "8"]


def frames_of(film: Path) -> np.ndarray:
    """The frames that a player would show, [frame, height, width, 3]."""
    command = [get_ffmpeg_exe(), "-i", film, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True)
    width, height = re.search(rb"Video: .* (\d+)x(\d+)", decoded.stderr).groups()
    return np.frombuffer(decoded.stdout, np.uint8).reshape(-1, int(height), int(width), 3)


@pytest.fixture(scope="module")
def cartpole():
    return PPO("CartPole-v1", seed=3, seeds=2, **TINY).learn(256)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_film_shows_the_first_state_every_second_step_and_the_last(suffix, cartpole, tmp_path):
    film = cartpole.watch(tmp_path / f"film{suffix}", seed=4, max_steps=7)
    frames = frames_of(film.path)
    assert frames.shape == (1 + 3 + 1, 400, 600, 3)
    assert film.frames == 5
    assert film.fps == 25  # CartPole takes 50 steps in a second
    assert film.cut == (True,)
    assert film.evaluation.lengths == {4: [7]}
    assert (frames.reshape(5, -1).std(axis=1) > 1).all()
    moved = np.abs(np.diff(frames.astype(int), axis=0)).max(axis=(1, 2, 3))
    assert (moved > 50).all()
    assert [path.name for path in tmp_path.iterdir()] == [f"film{suffix}"]


def test_the_episodes_are_those_of_evaluate_in_the_same_engine(tmp_path):
    agent = PPO("Pendulum-v1", seeds=2, **TINY).learn(256)
    film = agent.watch(tmp_path / "film.mp4", seed=1, episodes=2, env_seed=5, every=100)
    again = load(agent.save(tmp_path / "model"), backend="gymnasium", workers=0)
    evaluation = again.evaluate(2, seed=1, env_seed=5)
    np.testing.assert_allclose(film.evaluation.returns[1], evaluation.returns[1], rtol=1e-4)
    assert film.evaluation.returns[1][0] != film.evaluation.returns[1][1]
    assert film.frames == 2 * (1 + 2)
    assert film.seconds == pytest.approx(6 / (30 / 100))
    assert film.cut == (False, False)
    assert "Gymnasium" in film.note.partition("trained on")[0]
    assert "EnvPool" in film.note.partition("trained on")[2]
    sampled = agent.watch(tmp_path / "film.mp4", seed=1, env_seed=5, every=100, stochastic=True)
    assert sampled.evaluation.returns[1][0] != film.evaluation.returns[1][0]


class Drawn(gymnasium.Env[Any, Any]):
    """Ends after six steps; its picture is as light as steps were made, and of an odd size."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

    def __init__(self, render_mode=None, sick=None):
        self.render_mode, self.sick, self.renders = render_mode, sick, 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.sick == "step" and self.steps == 4:
            raise ZeroDivisionError
        return np.zeros(1, np.float32), 1.0, self.steps == 6, False, {}

    def render(self):
        self.renders += 1
        if self.sick == "render" and self.renders == 4:
            return None
        height = 35 if self.sick == "size" and self.renders == 4 else 33
        return np.full((height, 47, 3), 40 * self.steps, np.uint8)


def test_callables_are_filmed_and_odd_sizes_get_an_edge(tmp_path):
    agent = PPO(Drawn, workers=0, **TINY)
    film = agent.watch(tmp_path / "film.mp4", fps=5.0, every=4)
    frames = frames_of(film.path)
    assert frames.shape == (3, 34, 48, 3)
    np.testing.assert_allclose(frames[:, :30, :40].mean(axis=(1, 2, 3)), [0, 160, 240], atol=8)
    assert (film.fps, film.note) == (5, None)
    gif = frames_of(agent.watch(tmp_path / "film.gif").path)
    np.testing.assert_allclose(gif.mean(axis=(1, 2, 3)), np.arange(0, 241, 40), atol=3)
    made = load(agent.save(tmp_path / "model"), env=Drawn(render_mode="rgb_array"))
    assert made.watch(tmp_path / "object.mp4").frames == 7
    chooses = load(tmp_path / "model", env=lambda: Drawn("rgb_array"))
    assert chooses.watch(tmp_path / "chooses.mp4").evaluation.returns == {0: [6.0]}


CANNOT = "cannot be filmed: made with render_mode='rgb_array', an environment must return frames"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: Drawn(), CANNOT),
        (Drawn(), "Drawn " + CANNOT),
        (lambda render_mode=None: Drawn(render_mode, "render"), CANNOT),
        (
            lambda render_mode=None: Drawn(render_mode, "size"),
            r"of one size, but after \(33, 47, 3\) came \(35",
        ),
        ("HopperHop-v1", "HopperHop-v1 is a task of EnvPool alone"),
        ("ALE/Pong-v5", "ALE/Pong-v5 cannot be filmed yet: what trains on Atari's games"),
    ],
)
def test_what_cannot_be_filmed_is_refused_and_an_earlier_film_stays(env, message, tmp_path):
    agent = PPO(env, workers=0 if callable(env) else None, **TINY)
    (tmp_path / "film.mp4").write_text("earlier")
    with pytest.raises(UserError, match=message):
        agent.watch(tmp_path / "film.mp4", every=1)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("film.mp4", "earlier")]


def test_an_error_of_the_environment_is_its_own_and_leaves_no_half_film(tmp_path):
    agent = PPO(Drawn, workers=0, env_kwargs={"sick": "step"}, **TINY)
    with pytest.raises(ZeroDivisionError):
        agent.watch(tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


def test_mistakes_get_one_sentence(cartpole, tmp_path, monkeypatch, capsys):
    model = str(cartpole.save(tmp_path / "model"))
    film = str(tmp_path / "film.mp4")
    mistakes = {
        ("--out", "film.avi"): "A film's name ends in .mp4 or .gif, but this one is film.avi.",
        ("--out", f"{model}/film.mp4"): "cannot be written as",
        ("--out", film, "--seed", "9"): "There is no seed 9 here; the seeds are 3, 4.",
        ("--out", film, "--episodes", "0"): "episodes must be at least 1, but is 0.",
        ("--out", film, "--fps", "0"): "fps must be in (0, 1000], but is 0.0.",
        ("--out", film, "--render-kwargs", "5"): "--render-kwargs must be a JSON object",
        ("--out", film, "--render-kwargs", '{"sun": 1}'): "CartPole-v1 does not accept the argument 'sun'.",
    }
    for arguments, message in mistakes.items():
        assert cli.run(["watch", model, *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    with pytest.raises(UserError, match="FilmConfig has no setting episode; did you mean episodes"):
        cartpole.watch(film, episode=2)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/bin/false")
    with pytest.raises(UserError, match="The film could not be encoded: ffmpeg failed"):
        cartpole.watch(film)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"run: pip install 'ppo-dice\[video\]'"):
        cartpole.watch(film)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_command_tells_what_was_filmed(cartpole, tmp_path, capsys):
    model = cartpole.save(tmp_path / "model")
    film = tmp_path / "films" / "film.mp4"
    options = ["--seed", "4", "--episodes", "2", "--max-steps", "5", "--stochastic"]
    assert cli.run(["watch", str(model), "--out", str(film), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ppo on CartPole-v1, seed 4, sampled actions"
    assert lines[1].startswith("note: filmed on Gymnasium ")
    assert lines[2:4] == [f"  episode {number}: return 5.0 in 5 steps, then cut" for number in (1, 2)]
    assert lines[4] == f"{film}: 8 frames, 0.3 s"
    assert film.stat().st_size > 1000


DRAW = "import mujoco; c = mujoco.GLContext(8, 8); c.make_current(); print(mujoco.MjrContext)"


def opengl_works() -> bool:
    """Whether MuJoCo draws here, asked without this library; an OpenGL that somebody chose has to."""
    if "MUJOCO_GL" in os.environ:
        return True
    environment = os.environ | {"MUJOCO_GL": "egl"}
    return subprocess.run([sys.executable, "-c", DRAW], env=environment, capture_output=True).returncode == 0


def test_mujoco_is_filmed_by_another_engine_than_it_was_trained_in(elsewhere):
    agent = PPO("Hopper-v5", **TINY)
    watch = lambda: agent.watch("hopper.mp4", max_steps=12, render_kwargs={"width": 64, "height": 48})
    if not opengl_works():  # a machine without it is told what it lacks
        with pytest.raises(UserError, match="run: apt-get install libegl1 libgl1-mesa-dri"):
            watch()
        return
    film = watch()
    frames = frames_of(film.path)
    assert film.fps == 25  # one step in five, of 125 in a second
    assert frames.shape == (1 + -(-film.evaluation.lengths[0][0] // 5), 48, 64, 3)
    assert (frames.reshape(len(frames), -1).std(axis=1) > 10).all()
    assert (frames[0] != frames[-1]).any()
    assert "filmed on mujoco " in film.note
    assert "but trained on mujoco " in film.note
    evaluation = load(agent.save("model"), backend="gymnasium").evaluate(1, env_seed=0)
    assert evaluation.lengths[0][0] >= 12 or evaluation.lengths[0] == film.evaluation.lengths[0]


def test_a_way_to_opengl_that_does_not_work_is_one_sentence(elsewhere, monkeypatch):
    agent = PPO("Hopper-v5", **TINY)
    for screen in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(screen, raising=False)
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    with pytest.raises(UserError, match=r"cannot draw by glfw, .*; MUJOCO_GL=egl needs no screen\.$"):
        agent.watch("hopper.mp4", max_steps=1)
    model = agent.save("model")  # in a new process already MuJoCo's import fails
    command = [PROGRAM, "watch", model]
    result = subprocess.run(command, env=os.environ | {"MUJOCO_GL": "no"}, capture_output=True, text=True)
    assert result.returncode == 2
    assert "error: MuJoCo cannot draw by no, " in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in elsewhere.iterdir()] == ["model.safetensors"]


def test_filming_a_run_changes_no_bit_of_it(elsewhere, capsys):
    train = [
        "train",
        "Pendulum-v1",
        "--algo",
        "ppo",
        "--seeds",
        "2",
        "--total-timesteps",
        "320",
        *TINY_OPTIONS,
    ]
    film = ["--capture-video", "--capture-every", "150", "--capture-seed", "1"]
    assert cli.run([*train, "--out", "filmed", *film]) == 0
    assert "films: filmed/videos, filmed on Gymnasium " in capsys.readouterr().out
    assert cli.run([*train, "--out", "plain"]) == 0
    for name in ("model.safetensors", "episodes.jsonl"):
        assert Path("filmed", name).read_bytes() == Path("plain", name).read_bytes()
    films = sorted(Path("filmed", "videos").iterdir())
    steps = [192, 320]  # the first of 64 k beyond 150 and 300
    assert [film.name for film in films] == [f"seed_1_step_{n}.mp4" for n in steps]
    assert films[0].read_bytes() != films[1].read_bytes()
    assert not Path("plain", "videos").exists()


class Cinema:
    """A sink that is only there for films."""

    def __init__(self):
        self.shown = []

    def video(self, tag, file, env_steps, seed):
        self.shown.append((tag, file, file.stat().st_size > 0, env_steps, seed))

    def ignore(self, *content):
        pass

    begin = scalars = image = end = ignore


def test_films_of_several_seeds_lie_side_by_side_and_are_shown_where_the_run_is_tracked(tmp_path):
    elsewhere, cinema = tmp_path / "else" / "where", Cinema()
    films = [FilmCallback(every=100), FilmCallback(every=100, seed=4, folder=elsewhere)]
    agent = PPO(Drawn, seed=3, seeds=2, workers=0, **TINY)
    agent.learn(128, films, out=tmp_path / "run", track=cinema)
    first, second = tmp_path / "run" / "videos" / "seed_3_step_128.mp4", elsewhere / "seed_4_step_128.mp4"
    assert cinema.shown == [("film", first, True, 128, 3), ("film", second, True, 128, 4)]
    assert [[film.path for film in callback.films] for callback in films] == [[first], [second]]
    agent.learn(128, films[1])  # a callback can serve in another run, here one without a folder
    assert [film.path.name for film in films[1].films] == ["seed_4_step_256.mp4"]


def test_a_film_that_fails_does_not_end_the_run(tmp_path, capsys):
    renders = []

    class FailsLater(Drawn):
        def render(self):
            renders.append(self.steps)
            return super().render() if len(renders) < 12 else None

    agent = PPO(FailsLater, workers=0, **TINY)
    agent.learn(192, FilmCallback(every=64), out=tmp_path)
    assert agent.population.iteration == 3
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["seed_0_step_64.mp4"]
    said = capsys.readouterr().err
    assert f"no film after step 128: FailsLater {CANNOT}" in said
    assert "no film after step 192: " in said


def test_films_of_a_run_are_refused_before_it_begins(elsewhere, capsys):
    agent = PPO(Drawn(render_mode="rgb_array"), **TINY)
    with pytest.raises(UserError, match="used for training and cannot be filmed meanwhile"):
        agent.learn(64, FilmCallback(every=64), out="run")
    with pytest.raises(UserError, match=r"name it with out=…\."):
        PPO(Drawn, workers=0, **TINY).learn(64, FilmCallback(every=64))
    with pytest.raises(UserError, match="/proc/x cannot be the folder of films"):
        PPO(Drawn, workers=0, **TINY).learn(64, FilmCallback(every=64, folder="/proc/x"))
    with pytest.raises(UserError, match="every must be at least 1, but is 0"):
        FilmCallback(every=0)
    train = ["train", "CartPole-v1", "--algo", "ppo", "--out", "run"]
    for options, message in {
        ("--capture-every", "5"): "are for --capture-video, which is not given.",
        ("--capture-video", "--capture-every", "0"): "capture_every must be at least 1, or None, but is 0.",
        ("--capture-video", "--capture-seed", "7"): "There is no seed 7 here; the seeds are 0.",
    }.items():
        assert cli.run([*train, *options]) == 2
        assert message in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []
