import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from env_probes import Failing, Noise, equal, stream

from ppo_dice.envs import WorkerError, environment_seeds, make_envs
from ppo_dice.envs.worker_choice import cores, workers_that_pay
from ppo_dice.envs.workers import WorkerEnvironments
from ppo_dice.errors import UserError


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("env", [Noise, "CartPole-v1", "Pendulum-v1"])
def test_workers_give_the_stream_of_one_process(env: Any, workers: int) -> None:
    seeds = environment_seeds(0, 3)
    alone = make_envs(env, seeds, backend="gymnasium", workers=0)
    divided = make_envs(env, seeds, backend="gymnasium", workers=workers)
    assert alone.spec == divided.spec
    assert equal(stream(alone, 50), stream(divided, 50))
    divided.close()


def test_a_closure_reaches_the_workers() -> None:
    seeds = [1, 2]

    class Local(Noise):
        action_space = gymnasium.spaces.Discrete(len(seeds))

    divided = make_envs(lambda: Local(), seeds, workers=2)
    assert equal(stream(divided, 10), stream(make_envs(Noise, seeds, workers=0), 10))
    divided.close()


def test_an_id_registered_here_is_known_to_the_workers() -> None:
    gymnasium.register("OnlyHere-v0", entry_point=lambda: Noise())
    divided = make_envs("OnlyHere-v0", [1, 2], workers=2)
    assert divided.spec.id == "OnlyHere-v0"
    divided.close()
    del gymnasium.registry["OnlyHere-v0"]


def test_an_exception_arrives_with_its_traceback_and_ends_the_pool() -> None:
    envs = make_envs(Failing, [0, 1], workers=2)
    envs.reset()
    envs.step(np.zeros((2, 1), np.int32))
    with pytest.raises(
        WorkerError, match=r"(?s)Traceback.*in step.*ZeroDivisionError: the second step fails"
    ):
        envs.step(np.zeros((2, 1), np.int32))
    with pytest.raises(WorkerError, match="closed"):
        envs.step(np.zeros((2, 1), np.int32))
    assert processes_have_ended(envs)


def test_a_worker_that_dies_is_reported() -> None:
    envs = make_envs(Failing, [0, 1], env_kwargs={"how": "exit"}, workers=2)
    envs.reset()
    envs.step(np.zeros((2, 1), np.int32))
    with pytest.raises(WorkerError, match=r"died \(exit code 7\)"):
        envs.step(np.zeros((2, 1), np.int32))
    assert processes_have_ended(envs)


def test_an_interrupt_is_left_to_the_process_that_the_user_started() -> None:
    envs = make_envs(Noise, [0, 1], workers=2)
    envs.reset()
    for process in envs._processes:
        process.send_signal(signal.SIGINT)
    assert envs.step(np.zeros((2, 1), np.int32)).obs.shape == (2, 3)
    envs.close()


def test_an_interrupted_pool_ends_rather_than_give_stale_answers() -> None:
    class Slow(Noise):
        def step(self, action: Any) -> Any:
            time.sleep(0.5)
            return super().step(action)

    envs = make_envs(Slow, [0, 1], workers=2)
    envs.reset()
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        envs.step(np.zeros((2, 1), np.int32))
    with pytest.raises(WorkerError, match="closed"):
        envs.step(np.zeros((2, 1), np.int32))
    assert processes_have_ended(envs)


def test_a_users_mistake_arrives_as_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^Noise does not accept the argument 'colour'\.$"):
        make_envs(Noise, [0, 1], env_kwargs={"colour": 1}, workers=2)


def test_what_cannot_be_sent_is_refused() -> None:
    unsendable = (number for number in range(3))
    with pytest.raises(UserError, match=r"cannot be sent to worker processes .* use workers=0"):
        make_envs(lambda: Noise() if unsendable else None, [0, 1], workers=2)


def test_closing_is_quick_and_may_be_repeated() -> None:
    envs = make_envs(Noise, [0, 1], workers=2)
    envs.reset()
    start = time.perf_counter()
    envs.close()
    envs.close()
    assert time.perf_counter() - start < 2.0
    assert processes_have_ended(envs)


def test_a_pool_that_is_forgotten_ends_its_workers() -> None:
    envs = make_envs(Noise, [0, 1], workers=2)
    processes = envs._processes
    del envs
    assert all(process.poll() is not None for process in processes)


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import os, sys
import gymnasium, numpy as np
from ppo_dice.envs import make_envs

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None): return np.zeros(1, np.float32), {}
    def step(self, action):
        print("noise on stdout")
        return np.zeros(1, np.float32), 1.0, False, False, {}

gymnasium.register("Mine-v0", entry_point="__main__:Mine")
for env in (Mine, "Mine-v0"):
    envs = make_envs(env, [0, 1], workers=2)
    envs.reset()
    assert envs.step(np.zeros((2, 1), np.int32)).reward.tolist() == [1.0, 1.0]
print(*[process.pid for process in envs._processes], flush=True)
os._exit(0)  # without closing anything
"""
    )
    command = [sys.executable, str(script)]  # a script without a `__main__` guard
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in pids)


def test_workers_are_chosen_where_they_pay() -> None:
    class Slow(Noise):
        def step(self, action: Any) -> Any:
            time.sleep(2e-3)
            return super().step(action)

    assert workers_that_pay(Noise, {}, copies=2) == 0
    assert workers_that_pay(Slow, {}, copies=1) == 0
    assert workers_that_pay(Slow(), {}, copies=1) == 0
    assert workers_that_pay(Slow, {}, copies=2) == (2 if cores() > 1 else 0)


def processes_have_ended(envs: WorkerEnvironments) -> bool:
    return all(process.poll() is not None for process in envs._processes)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()
