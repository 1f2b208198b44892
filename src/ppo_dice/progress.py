"""What a person sees while training: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from functools import partial
from types import TracebackType
from typing import Protocol, runtime_checkable

import numpy as np

from ppo_dice.training import Iteration

SECONDS_BETWEEN_LINES = 10.0


@runtime_checkable
class Display(Protocol):
    """Shows iterations as they come."""

    def __enter__(self) -> "Display":
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, whatever happened."""
        ...

    def show(self, iteration: Iteration) -> None:
        """Show one iteration."""
        ...


def progress_display(total_steps: int, *, enabled: bool) -> Display:
    """A bar where standard error is a terminal, lines where it is not, nothing where it is not wanted."""
    if not enabled:
        return _Silence()
    return _Bar(total_steps) if sys.stderr.isatty() else _Lines(total_steps)


def mean_return(iteration: Iteration) -> float | None:
    """The mean over seeds of the last ten episodes' return; None until every seed has finished one."""
    returns = [metrics.get("rollout/last_10_return") for metrics in iteration.metrics]
    known = [value for value in returns if value is not None]
    return float(np.mean(known)) if len(known) == len(returns) else None


class _Silence:
    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, iteration: Iteration) -> None:
        pass


class _Lines(_Silence):
    def __init__(self, total_steps: int) -> None:
        self._total = total_steps
        self._began = time.perf_counter()
        self._next_line = 0.0
        self._first: tuple[float, int] | None = None
        self._evaluation = ""

    def show(self, iteration: Iteration) -> None:
        elapsed = time.perf_counter() - self._began
        self._evaluation = _evaluation_text(iteration) or self._evaluation
        finished = iteration.env_steps >= self._total
        if elapsed < self._next_line and not finished:
            return
        self._next_line = elapsed + SECONDS_BETWEEN_LINES
        left = self._seconds_left(elapsed, iteration)
        parts = [
            f"step {iteration.env_steps:,} of {self._total:,}",
            f"return {_return_text(iteration)}",
            self._evaluation,
            _speed_text(iteration),
            "" if left is None else f"{left:.0f} s left",
        ]
        print("   ".join(part for part in parts if part), file=sys.stderr, flush=True)

    def _seconds_left(self, elapsed: float, iteration: Iteration) -> float | None:
        """From the pace since the first iteration, which was mostly compilation."""
        if self._first is None:
            self._first = (elapsed, iteration.env_steps)
        began, first_steps = self._first
        steps = iteration.env_steps - first_steps
        return (elapsed - began) / steps * (self._total - iteration.env_steps) if steps else None


class _Bar(_Silence):
    def __init__(self, total_steps: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column

        whole = partial(Column, no_wrap=True)  # a narrow terminal shortens the bar and no number
        self._progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(table_column=whole()),
            TextColumn("return {task.fields[ret]}{task.fields[evaluation]}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(table_column=whole()),
            TextColumn("left"),
            TimeRemainingColumn(table_column=whole()),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(
            "training", total=total_steps, ret="–", evaluation="", speed="compiling"
        )

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, iteration: Iteration) -> None:
        if evaluation := _evaluation_text(iteration):
            self._progress.update(self._task, evaluation=f" {evaluation}")
        self._progress.update(
            self._task,
            completed=iteration.env_steps,
            ret=_return_text(iteration),
            speed=_speed_text(iteration),
        )


def _return_text(iteration: Iteration) -> str:
    value = mean_return(iteration)
    return "–" if value is None else f"{value:.1f}"


def _evaluation_text(iteration: Iteration) -> str:
    """The mean over seeds of an evaluation after this iteration; nothing where there is none."""
    means = [metrics["eval/mean_reward"] for metrics in iteration.metrics if "eval/mean_reward" in metrics]
    return f"evaluation {np.mean(means):.1f}" if means else ""


def _speed_text(iteration: Iteration) -> str:
    return f"{iteration.metrics[0]['time/fps']:,.0f} steps/s"
