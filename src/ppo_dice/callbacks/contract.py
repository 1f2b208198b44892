"""What a callback sees of a run, and when it is called."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from ppo_dice.errors import UserError
from ppo_dice.evaluation import Evaluation
from ppo_dice.rollout import Episode
from ppo_dice.run_folder import RunFolder
from ppo_dice.training import Iteration, Population
from ppo_dice.video import Film


@runtime_checkable
class AgentInTraining(Protocol):
    """What a callback may do with the agent, as it stands after this iteration."""

    @property
    def env(self) -> Any:
        """What it is trained on: an id, a callable or an environment."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the population."""
        ...

    @property
    def population(self) -> Population:
        """The training state of every seed: arrays to be read."""
        ...

    @property
    def final_return(self) -> dict[int, float]:
        """The mean return of the last 10 training episodes, by seed."""
        ...

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        *,
        seed: int | None = None,
    ) -> tuple[Any, Any]:
        """Actions for an observation or a batch of them."""
        ...

    def evaluate(
        self,
        episodes: int = 10,
        *,
        deterministic: bool = True,
        seed: int | None = None,
        env_seed: int = 0,
        env: Any = None,
    ) -> Evaluation:
        """Run whole episodes in environments of their own, with frozen statistics."""
        ...

    def check_evaluation(self, env: Any = None) -> None:
        """Refuse what `evaluate` could not run during training."""
        ...

    def watch(
        self,
        path: str | Path,
        *,
        seed: int | None = None,
        render_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Film:
        """Film whole episodes of one seed in an environment of its own, with frozen statistics."""
        ...

    def save(self, path: str | Path) -> Path:
        """Write the model of every seed to a file."""
        ...

    def description(self) -> dict[str, Any]:
        """What the header of a model file says."""
        ...


class Training:
    """A run as its callbacks see it, after each of its iterations.

    All of it is to be read. What a callback can do is `stop` the run, `record` numbers of its own beside
    those of the iteration, add an evaluation, and show pictures and films where the run is tracked.
    """

    def __init__(self, agent: AgentInTraining, final_env_steps: int, folder: RunFolder | None = None) -> None:
        self.agent = agent
        self.final_env_steps = final_env_steps
        """Steps per seed after which the run is complete."""
        self.evaluations: dict[int, Evaluation] = {}
        """The evaluations of this run, by the steps after which they were made."""
        self.evaluates = False
        """Whether a callback adds evaluations; set by it when training starts."""
        self.stop_reason: str | None = None
        self._folder = folder
        self._iteration: Iteration | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the population."""
        return self.agent.seeds

    @property
    def folder(self) -> Path | None:
        """The run's folder, where it is recorded."""
        return None if self._folder is None else self._folder.path

    @property
    def iteration(self) -> int:
        """Iterations done."""
        return self.last.population.iteration

    @property
    def env_steps(self) -> int:
        """Steps per seed since training began."""
        return self.last.env_steps

    @property
    def previous_env_steps(self) -> int:
        """The same, before this iteration."""
        return self.last.env_steps - self.last.steps

    @property
    def complete(self) -> bool:
        """Whether this iteration is the last one of the whole run."""
        return self._iteration is not None and self.env_steps >= self.final_env_steps

    @property
    def metrics(self) -> dict[int, Mapping[str, float]]:
        """The metrics of this iteration by seed, with what callbacks have recorded so far."""
        return {
            seed: MappingProxyType(metrics | self._own[seed])
            for seed, metrics in zip(self.seeds, self.last.metrics)
        }

    @property
    def episodes(self) -> dict[int, list[Episode]]:
        """The training episodes that ended in this iteration, by seed."""
        return {
            seed: [episode for episode in self.last.episodes if episode.member == member]
            for member, seed in enumerate(self.seeds)
        }

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation that was made after this iteration, if there is one."""
        return self.evaluations.get(self.env_steps)

    @property
    def last(self) -> Iteration:
        """This iteration as the training loop gave it."""
        if self._iteration is None:
            raise RuntimeError("No iteration is done yet.")
        return self._iteration

    @property
    def recorded(self) -> Iteration:
        """This iteration with what callbacks recorded, as it is written to files."""
        return dataclasses.replace(self.last, metrics=[dict(row) for row in self.metrics.values()])

    def reaches_multiple_of(self, steps: int) -> bool:
        """Whether this iteration reached a multiple of so many steps per seed, or went past one."""
        return self.env_steps // steps > self.previous_env_steps // steps

    def stop(self, reason: str) -> None:
        """End the run after this iteration, and say why; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason

    def record(self, tag: str, value: float | Mapping[int, float]) -> None:
        """Write a number beside the metrics of this iteration: one for all seeds, or a mapping by seed."""
        by_seed = value if isinstance(value, Mapping) else dict.fromkeys(self.seeds, value)
        for seed, number in by_seed.items():
            if seed not in self._own:
                raise UserError(f"{tag} was recorded for seed {seed}, which is not in the population.")
            if "/" not in tag or any(tag in metrics for metrics in self.last.metrics):
                raise UserError(f"A callback cannot record {tag!r}: choose another name, such as mine/{tag}.")
            if not math.isfinite(number):
                raise UserError(f"{tag} must be finite to be recorded, but is {number} for seed {seed}.")
            self._own[seed][tag] = float(number)

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Take in an evaluation of the agent as it stands: record its means, and write down its episodes."""
        self.evaluations[self.env_steps] = evaluation
        self.record("eval/mean_reward", evaluation.mean_by_seed)
        lengths = {seed: sum(values) / len(values) for seed, values in evaluation.lengths.items()}
        self.record("eval/mean_ep_length", lengths)

    def show_image(self, tag: str, file: Path, seed: int | None = None) -> None:
        """Show a picture (PNG) where the run is tracked; without a seed it is one of the population."""
        if self._folder:
            self._folder.sinks.image(tag, file, self.env_steps, seed)

    def show_video(self, tag: str, file: Path, seed: int | None = None) -> None:
        """Show a film where the run is tracked; without a seed it is one of the population."""
        if self._folder:
            self._folder.sinks.video(tag, file, self.env_steps, seed)

    def advance(self, iteration: Iteration) -> None:
        """Go on to the next iteration; the training loop does this."""
        self._iteration = iteration
        self._own: dict[int, dict[str, float]] = {seed: {} for seed in self.seeds}


class Callback:
    """Watches a run. A subclass says what happens after each iteration, and may prepare and clean up."""

    def on_training_start(self, training: Training) -> None:
        """Prepare, before anything is done or written; a `UserError` raised here means that nothing is."""

    def on_iteration(self, training: Training) -> bool | None:
        """Look at an iteration; returning False ends the run, like `training.stop`."""
        raise NotImplementedError

    def on_training_end(self, training: Training) -> None:
        """Clean up; called however the run ends, if it was started."""


CallbackLike = Callback | Callable[[Training], bool | None]
"""An object, or a plain function that is called after every iteration."""


class Callbacks:
    """The callbacks of one run, from what was given to `learn`: one or several, functions or objects."""

    def __init__(self, given: CallbackLike | Sequence[CallbackLike] | None) -> None:
        several = [] if given is None else list(given) if isinstance(given, Sequence) else [given]
        for one in several:
            if isinstance(one, type) or not (isinstance(one, Callback) or callable(one)):
                raise UserError(
                    f"A callback must be a function of the training or a Callback object, but is {one!r}."
                )
        self._given = several
        self._started: list[Callback] = []

    @property
    def names(self) -> list[str]:
        """What they are, for the record of the run."""
        return [_name(one) for one in self._given]

    def start(self, training: Training) -> None:
        """Before the first iteration."""
        for one in self._given:
            if isinstance(one, Callback):
                one.on_training_start(training)
                self._started.append(one)

    def call(self, training: Training) -> None:
        """After an iteration, each of them, also if one asks for the end of the run."""
        for one in self._given:
            wants_more = one.on_iteration(training) if isinstance(one, Callback) else one(training)
            if wants_more is False:
                training.stop(f"{_name(one)} returned False")

    def end(self, training: Training) -> None:
        """After the run, each that was started, also if one raises."""
        with ExitStack() as stack:
            for one in self._started:
                stack.callback(one.on_training_end, training)


def chosen_folder(chosen: str | Path | None, otherwise: Path | None, purpose: str) -> Path | None:
    """The folder that was chosen for something, made where it is missing, or else another one."""
    if chosen is None:
        return otherwise
    try:
        Path(chosen).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{chosen} cannot be the folder of {purpose}: {error.strerror}.") from None
    return Path(chosen)


def _name(thing: Any) -> str:
    """How a callback, or a setting of one, is written down: by its name, and never by its address."""
    if thing is None or isinstance(thing, bool | int | float | str | Path):
        return repr(thing)
    name: str = getattr(thing, "__qualname__", type(thing).__qualname__)
    if not dataclasses.is_dataclass(thing):
        return name
    settings = [f"{field.name}={_name(getattr(thing, field.name))}" for field in dataclasses.fields(thing)]
    return f"{name}({', '.join(settings)})"
