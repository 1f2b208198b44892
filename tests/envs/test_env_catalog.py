import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from env_probes import Counter, Noise, stream
from gymnasium import spaces

from ppo_dice.envs import catalog, list_environments, make_envs, register_backend
from ppo_dice.errors import UserError

pytest.importorskip("envpool")


def test_auto_takes_the_backend_that_runs_it_best() -> None:
    assert make_envs("CartPole-v1", [0]).spec.backend == "envpool"
    assert make_envs("Hopper-v3", [0]).spec.backend == "envpool"  # in Gymnasium a stub that only raises
    assert make_envs("Taxi-v4", [0]).spec.backend == "gymnasium"
    assert make_envs("gymnasium.envs.classic_control:CartPole-v1", [0]).spec.backend == "gymnasium"
    assert make_envs(Counter, [0]).spec.backend == "gymnasium"


def test_a_users_own_task_is_not_taken_for_envpools(monkeypatch: pytest.MonkeyPatch) -> None:
    own = gymnasium.envs.registration.EnvSpec("Ant-v4", entry_point=lambda: Counter())
    monkeypatch.setitem(gymnasium.registry, "Ant-v4", own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium: there is a newer version
        assert make_envs("Ant-v4", [0]).spec.backend == "gymnasium"


def test_a_module_before_the_colon_is_imported_and_kept_in_the_id() -> None:
    env_id = "gymnasium.envs.classic_control:CartPole-v1"
    assert make_envs(env_id, [0]).spec.id == env_id


def test_listing_names_every_environment_with_its_backends() -> None:
    listed = dict(list_environments())
    assert listed["Hopper-v5"] == ("envpool", "gymnasium")
    assert listed["HopperHop-v1"] == ("envpool",)
    assert listed["Taxi-v4"] == ("gymnasium",)
    assert list(listed) == sorted(listed)


def test_a_third_party_can_add_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_BACKENDS", dict(catalog._BACKENDS))

    def counters(env: Any, seeds: Any, env_kwargs: Any, workers: Any) -> Any:
        return make_envs(Counter, seeds, env_kwargs=env_kwargs, workers=0)

    register_backend("counters", counters, lambda: ["Count-v0"])
    assert make_envs("Count-v0", [0, 1], backend="counters").num_envs == 2
    assert dict(list_environments())["Count-v0"] == ("counters",)


def test_without_envpool_gymnasium_runs_everything() -> None:
    code = """
import sys
sys.modules["envpool"] = None  # as if it were not installed
from ppo_dice.envs import list_environments, make_envs
assert make_envs("CartPole-v1", [0]).spec.backend == "gymnasium"
assert dict(list_environments())["CartPole-v1"] == ("gymnasium",)
make_envs("CartPole-v1", [0], backend="envpool")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last_line = result.stderr.splitlines()[-1]
    assert last_line.startswith("ppo_dice.errors.UserError: EnvPool cannot be imported")
    assert "pip install envpool" in last_line


def test_importing_is_light() -> None:
    heavy = "{'envpool', 'jax', 'mujoco'}"
    code = f"import sys, ppo_dice.envs; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_old_versions_are_spoken_of_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_envs("CartPole-v0", [0, 1, 2], backend="gymnasium", workers=0)
    assert sum("out of date" in str(warning.message) for warning in caught) == 1


class WrongShape(Noise):
    def reset(self, **kwargs: Any) -> Any:
        return np.zeros(4), {}


class BadState(Noise):
    observation_space = spaces.Discrete(3)

    def reset(self, **kwargs: Any) -> Any:
        return 3, {}


class Broken(Noise):
    def __init__(self) -> None:
        raise RuntimeError("the robot is not plugged in\nsecond line")


def not_an_environment() -> Any:
    return 3


MISTAKES = [
    ("Hoper-v5", {}, "no environment 'Hoper-v5'; did you mean .*Hopper-v5"),
    ("Hopper-v9", {}, "did you mean .*Hopper-v5"),
    ("Xyzzyq", {}, "`ppo-dice envs` lists all"),
    ("no_such_module:Hopper-v5", {}, "module 'no_such_module' of .* cannot be imported: No module named"),
    ("Hopper-v5", {"backend": "mujoko"}, "no backend 'mujoko'; choose from auto, envpool, ale, gymnasium"),
    ("Taxi-v4", {"backend": "envpool"}, "EnvPool does not have it: .* did you mean .*Taxi-v3"),
    ("Hopper-v5", {"workers": -1}, "workers must be 0 or more"),
    ("Hopper-v5", {"backend": "envpool", "workers": 2}, "EnvPool uses threads"),
    (Counter, {"backend": "envpool"}, "EnvPool runs its own tasks only"),
    ("Hopper-v5", {"env_kwargs": {"foo": 1}}, "Hopper-v5 of EnvPool does not accept the argument 'foo'"),
    ("Hopper-v5", {"env_kwargs": {"foo": 1}, "backend": "gymnasium"}, "does not accept the argument 'foo'"),
    ("Hopper-v5", {"env_kwargs": {"frame_skip": "a"}}, "could not be made by EnvPool"),
    ("Hopper-v5", {"env_kwargs": {"xml_file": "no.xml"}}, "could not be made by EnvPool: .*no.xml"),
    ("Hopper-v5", {"env_kwargs": {"num_envs": 3}}, "'num_envs' is set by the library"),
    ("Hopper-v5", {"env_kwargs": {"max_episode_steps": 0}}, "max_episode_steps must be at least 1, not 0"),
    (
        "Hopper-v5",
        {"env_kwargs": {"xml_file": "no.xml"}, "backend": "gymnasium"},
        "Hopper-v5 could not be made: .*no.xml",
    ),
    ("TicTacToe-v1", {}, "game of several players"),
    (Broken, {}, "Broken could not be made: the robot is not plugged in"),
    (not_an_environment, {}, "not_an_environment made int, which is not a gymnasium.Env"),
    (WrongShape, {}, r"WrongShape returned an observation of shape \(4,\), .* declares \(3,\)"),
    (BadState, {}, r"BadState returned an observation = 3, which is not in Discrete\(3\)"),
    (Counter(), {"env_kwargs": {"length": 2}}, "cannot be given to an environment that is already made"),
]


@pytest.mark.filterwarnings("ignore:.*WARN")  # Gymnasium's checker speaks too
@pytest.mark.parametrize(("env", "options", "sentence"), MISTAKES)
def test_every_mistake_gets_one_sentence(env: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        stream(make_envs(env, [0], **options), 1)
    assert "\n" not in str(caught.value)


def test_one_object_cannot_be_several_copies() -> None:
    with pytest.raises(UserError, match="cannot make 2 copies; pass its id or a callable"):
        make_envs(Counter(), [0, 1])
    with pytest.raises(UserError, match="cannot be moved to a worker"):
        make_envs(Counter(), [0], workers=1)
    with pytest.raises(UserError, match="At least one environment"):
        make_envs(Counter, [])


@pytest.mark.parametrize(
    ("module", "env_id", "package"),
    [("mujoco", "Hopper-v5", "ppo-dice[mujoco]"), ("Box2D", "LunarLander-v3", "gymnasium[box2d]")],
)
def test_a_missing_library_comes_with_its_command(module: str, env_id: str, package: str) -> None:
    code = f"""
import sys
sys.modules[{module!r}] = None  # as if it were not installed
from ppo_dice.envs import make_envs
make_envs({env_id!r}, [0], backend="gymnasium")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = f"{env_id} needs a library that is not installed; run: pip install '{package}'"
    assert expected in result.stderr.splitlines()[-1]
