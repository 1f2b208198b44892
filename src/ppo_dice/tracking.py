"""Where a run is shown while it goes on: TensorBoard, Weights & Biases, and what others bring.

The files in the run's folder are the record. A sink is a copy of it, and no sink can harm a run: one that
fails is left out from there on, with a warning.
"""

import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ppo_dice.errors import UserError

TENSORBOARD_FOLDER = "tensorboard"
DEFAULT_PROJECT = "ppo-dice"


@runtime_checkable
class Sink(Protocol):
    """Takes what a run records. `seed` is None where something belongs to the whole population."""

    def begin(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Get ready before the first iteration; `config` is what `config.json` says of the run."""
        ...

    def scalars(self, values: Mapping[str, float], env_steps: int, seed: int) -> None:
        """Take the metrics of one iteration of one seed."""
        ...

    def image(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Take a picture (PNG)."""
        ...

    def video(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Take a film (MP4 or GIF)."""
        ...

    def end(self, result: Mapping[str, Any]) -> None:
        """Finish; `result` is what `result.json` says, or nothing where the run did not begin."""
        ...


class Sinks:
    """Several sinks as one, of which those that fail are left out."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._waiting, self._begun = list(sinks), list[Sink]()

    def begin(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Begin all of them; what fails here is an error, because nothing is lost yet."""
        for sink in self._waiting:
            sink.begin(folder, config)
            self._begun.append(sink)

    def scalars(self, values: Mapping[str, float], env_steps: int, seed: int) -> None:
        """Give every sink the metrics of one iteration of one seed."""
        self._each(lambda sink: sink.scalars(values, env_steps, seed))

    def image(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Give every sink a picture."""
        self._each(lambda sink: sink.image(tag, file, env_steps, seed))

    def video(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Give every sink a film."""
        self._each(lambda sink: sink.video(tag, file, env_steps, seed))

    def end(self, result: Mapping[str, Any]) -> None:
        """End those that have begun."""
        self._each(lambda sink: sink.end(result))
        self._begun = []

    def _each(self, call: Callable[[Sink], None]) -> None:
        for sink in list(self._begun):
            try:
                call(sink)
            except Exception as error:
                self._begun.remove(sink)
                warnings.warn(
                    f"{type(sink).__name__} failed and is left out from here on, while the run and its files "
                    f"go on: {type(error).__name__}: {error}",
                    RuntimeWarning,
                    stacklevel=3,
                )


def chosen_sinks(track: bool | Sink | Sequence[Sink]) -> list[Sink]:
    """The sinks that `track` means: True is Weights & Biases."""
    if isinstance(track, bool):
        return [WandB()] if track else []
    sinks = list(track) if isinstance(track, Sequence) else [track]
    for sink in sinks:
        if isinstance(sink, type) or not isinstance(sink, Sink):
            raise UserError(f"track must be True, a sink or a list of sinks, but has {sink!r}.")
    return sinks


class TensorBoard:
    """Event files, one TensorBoard run per seed; pictures of the population are in that of the first seed."""

    def __init__(self) -> None:
        self._writers: dict[int, Any] = {}

    def begin(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Only note where to write: a writer makes its folder when it has something to write."""
        self._folder, self._first_seed = folder / TENSORBOARD_FOLDER, config["seeds"][0]

    def scalars(self, values: Mapping[str, float], env_steps: int, seed: int) -> None:
        """Write metrics."""
        for tag, value in values.items():
            self._writer(seed).add_scalar(tag, value, env_steps)

    def image(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Write a picture."""
        from matplotlib.image import imread

        self._writer(seed).add_image(tag, imread(file), env_steps, dataformats="HWC")

    def video(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Leave it where it is: TensorBoard does not play films."""

    def end(self, result: Mapping[str, Any]) -> None:
        """Flush and close."""
        for writer in self._writers.values():
            writer.close()

    def _writer(self, seed: int | None) -> Any:
        from tensorboardX import SummaryWriter

        seed = self._first_seed if seed is None else seed
        if seed not in self._writers:
            self._writers[seed] = SummaryWriter(str(self._folder / f"seed_{seed}"))
        return self._writers[seed]


class WandB:
    """Weights & Biases: one W&B run per seed, in one group, so that its charts can average over seeds.

    `options` are given to `wandb.init`, as in `WandB(project="mine", entity="team", tags=["first"])`.
    Everything else is set as in any program that uses W&B, by `wandb login` and the variables `WANDB_…`.
    Pictures and films of the population are in the run of the first seed.
    """

    def __init__(self, **options: Any) -> None:
        spec = importlib.util.find_spec("wandb")
        if spec is None or spec.origin is None:  # a folder named wandb, such as W&B makes, has no origin
            raise UserError("Tracking with Weights & Biases needs its package: pip install wandb")
        self._options = options
        self._runs: dict[int, Any] = {}

    def begin(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Begin the runs, in the folder `wandb` of the run's folder."""
        import wandb

        group = f"{config['env']}-{config['algorithm']}-{folder.name}"
        try:
            for seed in config["seeds"]:
                options = {
                    "project": os.environ.get("WANDB_PROJECT", DEFAULT_PROJECT),
                    "group": group,
                    "name": f"{group}-seed_{seed}",
                    "dir": str(folder),
                    "settings": wandb.Settings(quiet=True, console="off"),
                    **self._options,
                }
                run = wandb.init(config={**config, "seed": seed}, reinit="create_new", **options)
                self._runs[seed] = run
                run.define_metric("*", step_metric="env_steps")
        except (wandb.errors.Error, TypeError, ValueError) as error:
            self.end({})
            raise UserError(f"Weights & Biases cannot begin: {str(error).strip()}") from None

    def scalars(self, values: Mapping[str, float], env_steps: int, seed: int) -> None:
        """Log metrics."""
        self._runs[seed].log({**values, "env_steps": env_steps})

    def image(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Log a picture."""
        import wandb

        self._run(seed).log({tag: wandb.Image(str(file)), "env_steps": env_steps})

    def video(self, tag: str, file: Path, env_steps: int, seed: int | None) -> None:
        """Log a film."""
        import wandb

        self._run(seed).log({tag: wandb.Video(str(file)), "env_steps": env_steps})

    def end(self, result: Mapping[str, Any]) -> None:
        """Write the result into the summary of each run, and upload what is left."""
        for seed, run in self._runs.items():
            shared = {name: result[name] for name in ("complete", "stopped") if name in result}
            own = result.get("final_return", {}).get(str(seed))
            run.summary.update(shared | ({} if own is None else {"final_return": own}))
            run.finish()
        self._runs = {}

    def _run(self, seed: int | None) -> Any:
        return next(iter(self._runs.values())) if seed is None else self._runs[seed]
