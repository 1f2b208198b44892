"""A run's folder: what is in it, when it is written, and that nothing in it is ever overwritten."""

import contextlib
import importlib.metadata
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ppo_dice.config import FORMAT_VERSION
from ppo_dice.errors import UserError
from ppo_dice.tracking import TENSORBOARD_FOLDER, Sink, Sinks, TensorBoard

CONFIG_FILE, MODEL_FILE, RESULT_FILE = "config.json", "model.safetensors", "result.json"
BEST_MODEL_FILE, CURVE_FILE, VIDEO_FOLDER = "best_model.safetensors", "learning_curve.png", "videos"
SECONDS_BETWEEN_SAVES = 60.0
PACKAGES = (
    *("ppo-dice", "jax", "jaxlib", "equinox", "optax", "numpy"),
    *("gymnasium", "envpool", "ale-py", "mujoco"),
)


class RunFolder:
    """Records one run. Making the object only checks that the folder can become a run."""

    begun = False
    """Whether there is a folder that must be finished."""

    def __init__(self, path: Path, sinks: Sequence[Sink] = ()) -> None:
        self.path = path
        self.sinks = Sinks([TensorBoard(), *sinks])
        self._result: dict[str, Any] = {}
        _check_free(path)

    def begin_sinks(self, description: dict[str, Any], run: dict[str, Any]) -> None:
        """Begin what shows the run elsewhere; it may ask for a login, and what fails leaves no run behind."""
        _check_free(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self.sinks.begin(self.path, {**description, "run": run})
        except BaseException:
            with contextlib.suppress(OSError):  # something is in it
                self.path.rmdir()
            raise

    def begin(self, description: dict[str, Any], run: dict[str, Any]) -> None:
        """Write down what is about to happen."""
        from ppo_dice.recording import Recorder

        self._began = self._last_save = time.perf_counter()
        self._title = f"{description['algorithm']} on {description['env']}"
        content = {
            "format_version": FORMAT_VERSION,
            **description,
            "run": run,
            "versions": versions(),
            "device": device(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        self._write_json(CONFIG_FILE, content)
        self._recorder = Recorder(self.path, n_envs=description["config"]["n_envs"])
        self._env_steps = 0
        self.begun = True

    def record(self, iteration: Any, evaluation: Any, save_model: Callable[[Path], Any]) -> None:
        """Append an iteration and an evaluation after it, if any; now and then, write the model as it is."""
        self._recorder.write(iteration)
        if evaluation is not None:
            self._recorder.write_evaluation(evaluation, iteration.env_steps)
        for seed, metrics in zip(iteration.population.seeds, iteration.metrics):
            self.sinks.scalars(metrics, iteration.env_steps, seed)
        self._env_steps = iteration.env_steps
        if time.perf_counter() - self._last_save > SECONDS_BETWEEN_SAVES:
            save_model(self.path / MODEL_FILE)
            self._last_save = time.perf_counter()

    def finish(
        self,
        save_model: Callable[[Path], Any],
        final_return: dict[int, float],
        *,
        complete: bool,
        stopped: str | None,
    ) -> None:
        """Write the model, the result and the picture, whether the run came to its end or was stopped."""
        from ppo_dice.evaluation import standard_error
        from ppo_dice.recording import METRICS_FILE
        from ppo_dice.reports.learning_curve import plot_learning_curve

        self._recorder.close()
        save_model(self.path / MODEL_FILE)
        values = list(final_return.values())
        self._result = {
            "format_version": FORMAT_VERSION,
            "complete": complete,
            "stopped": stopped,
            "env_steps": self._env_steps,
            "seconds": round(time.perf_counter() - self._began, 3),
            "final_return": {str(seed): value for seed, value in final_return.items()},
            "mean": sum(values) / len(values) if values else None,
            "standard_error": standard_error(values),
        }
        self._write_json(RESULT_FILE, self._result)
        plot_learning_curve(self.path / METRICS_FILE, self.path / CURVE_FILE, self._title)
        self.sinks.image("learning_curve", self.path / CURVE_FILE, self._env_steps, None)

    def end_sinks(self) -> None:
        """End what shows the run elsewhere, which may take a while to send what is left."""
        self.sinks.end(self._result)

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        from ppo_dice.checkpoint import write_atomically

        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        write_atomically(self.path / name, text.encode())


def versions() -> dict[str, str]:
    """Python and every package that decides what a run computes."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def device() -> dict[str, Any]:
    """The machine as far as it matters for bits and speed."""
    import jax

    return {
        "jax_backend": jax.default_backend(),
        "jax_devices": [str(one) for one in jax.devices()],
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
    }


def _check_free(path: Path) -> None:
    try:
        existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    except OSError as error:  # a name that is too long, perhaps
        raise UserError(f"{path} cannot be a run's folder: {error.strerror}.") from None
    if not existing.is_dir():
        raise UserError(f"{path} cannot be a run's folder, because {existing} is a file.")
    _check_nothing_to_overwrite(path)
    try:  # permissions do not tell all: the file system may be read-only, or full
        tempfile.TemporaryDirectory(dir=existing).cleanup()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror} in {existing}.") from None


def _check_nothing_to_overwrite(path: Path) -> None:
    elsewhere = "choose another folder with --out (out=…)"
    if (path / CONFIG_FILE).exists():
        raise UserError(f"{path} already holds a run; {elsewhere}.")
    from ppo_dice.recording import EPISODES_FILE, EVALUATIONS_FILE, METRICS_FILE

    logs = (METRICS_FILE, EPISODES_FILE, EVALUATIONS_FILE, TENSORBOARD_FOLDER)
    for name in (MODEL_FILE, BEST_MODEL_FILE, *logs, RESULT_FILE, CURVE_FILE, VIDEO_FOLDER):
        if (path / name).exists():
            raise UserError(f"{path} already holds {name}, which a run would write; {elsewhere}.")
