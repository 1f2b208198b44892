"""Gymnasium environments stepped in worker processes.

A worker is a fresh Python started with `-c`, neither forked nor spawned by multiprocessing: forking is unsafe
beside JAX's threads, and multiprocessing imports the user's script again, which breaks scripts without a
`__main__` guard and notebooks. Messages are pickles over stdin and stdout; callables travel by cloudpickle,
which carries what is defined in `__main__` by value. A worker ends when its stdin does, so it cannot outlive
the process that started it.
"""

import contextlib
import dataclasses
import itertools
import pickle
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, NamedTuple

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from jaxtyping import Shaped

from ppo_dice.envs.contract import EnvSpec, Step
from ppo_dice.envs.gymnasium_make import EnvLike
from ppo_dice.errors import UserError

# The interrupt is ignored before anything else: Ctrl-C is for the process that the user started.
_WORKER = """
import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
import sys; sys.path[:] = {path!r}
from ppo_dice.envs.worker_process import serve; serve()
"""
_SECONDS_TO_CLOSE = 5.0


class WorkerError(RuntimeError):
    """An environment failed in a worker process; the message carries the worker's traceback."""


class Order(NamedTuple):
    """What a worker needs to make its copies."""

    env: EnvLike
    registration: gymnasium.envs.registration.EnvSpec | None
    seeds: list[int]
    env_kwargs: dict[str, Any]
    checked: bool


class WorkerEnvironments:
    """Copies of one Gymnasium environment, divided among worker processes."""

    spec: EnvSpec
    num_envs: int

    def __init__(
        self,
        env: EnvLike,
        seeds: Sequence[int],
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        workers: int,
    ) -> None:
        """Divide one copy per seed among `workers` processes, in order."""
        if isinstance(env, gymnasium.Env):
            raise UserError(
                "An environment object cannot be moved to a worker; pass a callable that makes one."
            )
        self.num_envs = len(seeds)
        bounds = np.linspace(0, len(seeds), min(workers, len(seeds)) + 1).astype(int).tolist()
        self._parts = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
        orders = [_order(env, seeds[part], env_kwargs or {}, part.start == 0) for part in self._parts]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._finalizer = weakref.finalize(self, _shut_down, self._processes)
        self._processes.extend(_start() for _ in orders)
        self.spec = self._exchange(orders)[0]

    def reset(self) -> Shaped[np.ndarray, "n O"]:
        """Start every copy on its own seed."""
        return np.concatenate(self._exchange([pickle.dumps(("reset", None))] * len(self._parts)))

    def step(self, actions: Shaped[np.ndarray, "n A"]) -> Step:
        """Step every copy and restart those whose episode ended."""
        messages = [pickle.dumps(("step", actions[part]), protocol=5) for part in self._parts]
        return Step(*(_joined(parts) for parts in zip(*self._exchange(messages))))

    def stepping(self) -> AbstractContextManager[None]:
        """Nothing to arrange."""
        return nullcontext()

    def close(self) -> None:
        """End the workers."""
        self._finalizer()

    def _exchange(self, messages: list[bytes]) -> list[Any]:
        """Send each worker its message, then read the answers; all work at the same time."""
        if not self._finalizer.alive:
            raise WorkerError("The environments are closed.")
        try:
            for process, message in zip(self._processes, messages):
                _write(process, message)
            return [_answer(process) for process in self._processes]
        except BaseException:  # an interrupt too: the workers are no longer in step with each other
            self.close()
            raise


def _order(env: EnvLike, seeds: Sequence[int], env_kwargs: Mapping[str, Any], checked: bool) -> bytes:
    order = Order(env, _registration(env), list(seeds), dict(env_kwargs), checked)
    try:
        pickled: bytes = cloudpickle.dumps(order)
    except Exception as cause:
        raise UserError(
            f"The environment cannot be sent to worker processes ({cause}); use workers=0."
        ) from cause
    return pickled


def _registration(env: EnvLike) -> gymnasium.envs.registration.EnvSpec | None:
    """Return what the user may have registered in this process only."""
    spec = gymnasium.registry.get(env) if isinstance(env, str) else None
    if spec is not None and isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
        creator: Any = load_env_creator(spec.entry_point)
        return dataclasses.replace(spec, entry_point=creator)
    return spec


def _start() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", _WORKER.format(path=sys.path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _write(process: "subprocess.Popen[bytes]", message: bytes) -> None:
    pipe = _pipe(process.stdin)
    with contextlib.suppress(BrokenPipeError):  # the worker is gone: reading its answer says how
        pipe.write(message)
        pipe.flush()


def _answer(process: "subprocess.Popen[bytes]") -> Any:
    try:
        kind, content = pickle.load(_pipe(process.stdout))
    except (EOFError, pickle.UnpicklingError):
        code = process.wait(_SECONDS_TO_CLOSE)
        raise WorkerError(f"An environment worker died (exit code {code}).") from None
    if kind == "user error":
        raise UserError(content)
    if kind == "failure":
        raise WorkerError(f"An environment failed in its worker:\n{content}")
    return content


def _joined(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


def _shut_down(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        with contextlib.suppress(BrokenPipeError):  # it died before reading all it was sent
            _pipe(process.stdin).close()
    for process in processes:
        try:
            process.wait(_SECONDS_TO_CLOSE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _pipe(process.stdout).close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
