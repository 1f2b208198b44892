"""A run from its beginning to its end: iterations are called back, recorded and shown as they come."""

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial

from ppo_dice.callbacks import Callbacks, Training
from ppo_dice.config import RunConfig
from ppo_dice.envs import Environments
from ppo_dice.interrupts import interrupts_kept, interrupts_wait
from ppo_dice.progress import Display
from ppo_dice.run_folder import RunFolder
from ppo_dice.training import Iteration


@dataclass(frozen=True)
class RecordedRun:
    """Those who take part in a run. Each that has begun is ended too, whatever happens."""

    training: Training
    config: RunConfig
    envs: Environments
    callbacks: Callbacks
    folder: RunFolder | None
    display: Display

    def go(self, iterations: Iterable[Iteration], take_in: Callable[[Iteration], None]) -> None:
        """Go through the iterations; the agent takes each in before anybody else sees it."""
        try:
            self._begin()
            with interrupts_kept() as raise_lost_interrupt, self.display:
                for iteration in iterations:
                    with interrupts_wait() as may_be_interrupted:  # agent and folder tell the same story
                        take_in(iteration)
                        self._follow(iteration, may_be_interrupted)
                    self.display.show(self.training.recorded)
                    raise_lost_interrupt()
                    if self.training.stop_reason is not None:
                        break
        except BaseException as error:
            is_interrupt = isinstance(error, KeyboardInterrupt)
            self.training.stop_reason = "interrupted" if is_interrupt else repr(error)
            raise
        finally:
            self._end()

    def _begin(self) -> None:
        self.callbacks.start(self.training)
        if not self.folder:
            return
        description = self.training.agent.description() | {"callbacks": self.callbacks.names}
        config = dataclasses.asdict(self.config)
        with interrupts_wait() as may_be_interrupted:
            with may_be_interrupted():
                self.folder.begin_sinks(description, config)
            self.folder.begin(description, config)

    def _follow(
        self, iteration: Iteration, may_be_interrupted: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Call back and record; what a callback breaks off is recorded up to there."""
        self.training.advance(iteration)
        try:
            with may_be_interrupted():
                self.callbacks.call(self.training)
        finally:
            if self.folder:
                save_model = self.training.agent.save
                self.folder.record(self.training.recorded, self.training.evaluation, save_model)

    def _end(self) -> None:
        """Callbacks, environments, files and sinks, in this order; none is left out where another raises."""
        try:
            with interrupts_wait() as may_be_interrupted, ExitStack() as ending:  # last in, first out
                if self.folder and self.folder.begun:
                    agent, training = self.training.agent, self.training
                    finish = partial(
                        self.folder.finish, complete=training.complete, stopped=training.stop_reason
                    )
                    ending.callback(finish, agent.save, agent.final_return)
                ending.callback(self.envs.close)
                with may_be_interrupted():
                    self.callbacks.end(self.training)
        finally:
            if self.folder:
                self.folder.end_sinks()  # Ctrl-C may cut it short: it may need a network
