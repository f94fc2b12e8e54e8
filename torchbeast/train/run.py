"""A training run: its learner, its published weights, and its outputs.

Of several ranks the first one has all outputs.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from torchbeast.cli.command import SIGNAL_ERRORS
from torchbeast.core.learner import rollouts_at_once
from torchbeast.core.stats import StepStats
from torchbeast.core.types import RunError
from torchbeast.envs import derive_seed
from torchbeast.runtime.precision import keep_freed_pages, use_whole_float32
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.text import typed_line
from torchbeast.runtime.threads import Threads
from torchbeast.runtime.workers import raise_file_limit
from torchbeast.train.outputs import NoOutputs, RunOutputs
from torchbeast.train.plan import RunPlan
from torchbeast.train.start import RunState, check_recipe, make_learner, recipe, resume_or_start

log = logging.getLogger("torchbeast")


# How long threads get to finish what they are at when a run ends.
JOIN_TIMEOUT_S = 3.0
# How long the ranks of an interrupted run get for a last step together. torchrun kills after 30.
LAST_STEP_TIMEOUT_S = 15.0


class TrainingRun:
    """Agent, learner, published weights and outputs of one run, or of one rank of it.

    A context manager: inside it a signal ends :meth:`supervise` instead of the process.
    """

    def __init__(
        self,
        plan: RunPlan,
        signals: StopSignals,
        make_weights: Callable[[Any], Any],
    ) -> None:
        """Loads the run's checkpoint or makes a new agent.

        Args:
            make_weights: builds the object that publishes the agent's weights to those who act,
                from the agent.

        Raises:
            UsageError: the run cannot be resumed, or its directory cannot be written to.
        """
        self._plan = plan
        self._signals = signals
        self.threads = Threads()
        raise_file_limit()
        keep_freed_pages()
        # One core for each learner and inference thread: see plan._plan_threads().
        torch.set_num_threads(1)
        use_whole_float32(plan.devices.learner)
        state = self._open_outputs()
        with contextlib.ExitStack() as failing:
            failing.push(self.__exit__)  # What fails here is in out.log, too.
            self._make_learner(state, make_weights)
            failing.pop_all()

    def _open_outputs(self) -> RunState:
        """Returns what the run starts from: of all ranks what the first one does."""
        plan, ranks = self._plan, self._plan.ranks
        self._outputs: RunOutputs | NoOutputs
        if ranks.is_first:
            # Before anything is written: a run that cannot be resumed is left as it is.
            state = resume_or_start(plan)
            self._outputs = RunOutputs(plan, state)
        else:
            contents = ranks.broadcast(None)  # Of the first rank, from _make_learner.
            check_recipe(contents["recipe"], recipe(plan.config))
            state = RunState(contents["seed"], contents)
            self._outputs = NoOutputs()
        return state

    def _make_learner(self, state: RunState, make_weights: Callable[[Any], Any]) -> None:
        plan, ranks = self._plan, self._plan.ranks
        tracks = plan.config.output.track_gradients
        on_gradients = self._outputs.record_gradients if tracks else lambda: None
        self.learner = make_learner(plan, state, self._on_step, on_gradients)
        if ranks.count > 1 and ranks.is_first:
            shared = {"seed": state.seed, "recipe": recipe(plan.config)}
            ranks.broadcast({**self.learner.state_dict(), **shared})
        self._outputs.attach(self.learner)
        self._seed = state.seed
        if not ranks.is_first:
            torch.manual_seed(self.own_seed)  # Else all sample actions with the same numbers.
        on_cpu = plan.devices.learner.type == "cpu"
        # Rollouts that a learner thread hands to the learner at a time.
        self.rollouts_at_once = rollouts_at_once(
            plan.config.learning.batch_size,
            plan.config.learning.unroll_length,
            plan.threads.learner_threads,
            self.learner.agent.rows_at_once if on_cpu else None,
        )
        self.weights = make_weights(self.learner.agent)
        self.weights.publish(self.learner.agent, self.learner.learner_steps)

    def __enter__(self) -> TrainingRun:
        self._signals.__enter__()  # From here on there is something to save.
        self._outputs.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # What a signal causes elsewhere is no news.
        if error and (self._signals.received is None or not isinstance(error, SIGNAL_ERRORS)):
            self._outputs.record_error(error)
        self._outputs.close()
        self._signals.__exit__()

    @property
    def own_seed(self) -> int:
        """A seed of this rank at this step: a run that resumes later plays other games."""
        return derive_seed(self._seed, self._plan.ranks.index, self.learner.steps)

    def supervise(
        self,
        check: Callable[[], None],
        queues: Callable[[], dict[str, int]],
        stop: Callable[[], None],
    ) -> None:
        """Reports and saves until all steps are done, a signal comes or something fails.

        Args:
            check: called twice a second; what it raises ends the run.
            queues: sizes of the queues, for the records.

        Raises the first error of any thread, unless it came beside a signal.
        """
        try:
            while not self._is_over():
                self.threads.changed.wait(timeout=0.5)
                self.threads.changed.clear()
                if self._signals.received is not None:  # Servers may have got it, too.
                    break
                check()
                self._outputs.update(queues())
        finally:
            if self._signals.received is not None:
                self._outputs.announce_stop(self._signals.received)
            last = queues()
            self._make_last_step()
            self.learner.close()
            stop()
            self.threads.join(JOIN_TIMEOUT_S)
            self._save(last)
        if self.threads.error is not None and self._signals.received is None:
            raise self._find_reason(self.threads.error)

    def finish(self) -> None:
        """Evaluates the final agent and says how the run ended.

        To be called when servers and actors have ended. Raises an error of a thread that
        :meth:`supervise` did not, and RunError if the run could not be saved or another rank
        stopped it.
        """
        self._outputs.finish(self._is_interrupted)
        if self.threads.error is not None:
            raise self._find_reason(self.threads.error)
        if self.learner.is_stopped and self._signals.received is None:
            raise RunError("another rank stopped the run")

    def _save(self, queues: dict[str, int]) -> None:
        """Saves the run. What fails then does not hide the error that ended the run."""
        ended_by = self.threads.error or sys.exc_info()[1]
        try:
            self._outputs.save(queues, is_interrupted=self._is_interrupted())
        except Exception as error:
            if ended_by is None:
                raise
            if str(error) != str(ended_by):
                log.error("The run cannot be saved: %s", typed_line(error))

    def _find_reason(self, error: BaseException) -> BaseException:
        """Returns what ended the run: divergence, of which sampling from NaN is only a result, or
        the error of a thread.
        """
        try:
            self.learner.check_weights()
        except RunError as divergence:
            return divergence
        except Exception as second:  # A GPU that has failed fails here, too.
            log.debug("The weights cannot be checked: %s", typed_line(second))
        return error

    def _make_last_step(self) -> None:
        """Lets all ranks of an interrupted run end with the same step, if they still can."""
        if self._plan.ranks.count == 1:
            return
        self.learner.request_stop()
        deadline = time.monotonic() + LAST_STEP_TIMEOUT_S
        while not self.learner.is_over and time.monotonic() < deadline:
            if self.threads.error is not None:
                return
            self.threads.changed.wait(timeout=0.1)
            self.threads.changed.clear()

    def _is_interrupted(self) -> bool:
        return (
            self._signals.received is not None
            or self.threads.error is not None
            or self.learner.is_stopped
        )

    def _is_over(self) -> bool:
        return self._is_interrupted() or self.learner.is_over

    def _on_step(self, stats: StepStats) -> None:
        self.weights.publish(self.learner.agent, stats.learner_steps)
        self._outputs.record_step(stats)
