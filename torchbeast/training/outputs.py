"""What a run gives to its user: files, progress, checkpoints, scores while it trains.

Of several ranks the first one gives all of it; the others have :class:`NoOutputs`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

from torchbeast.core.learner import Learner, StepStats
from torchbeast.core.types import RunError
from torchbeast.envs.games import short_name
from torchbeast.runtime.text import counted
from torchbeast.runtime.threads import StopSignals
from torchbeast.training.checkpointer import Checkpointer
from torchbeast.training.evaluation import AgentEvaluator
from torchbeast.training.expectations import find_expectation
from torchbeast.training.recorder import Recorder
from torchbeast.training.setup import Setup
from torchbeast.training.state import RunState

log = logging.getLogger("torchbeast")


class NoOutputs:
    """The outputs of a rank that is not the first: none."""

    def attach(self, learner: Learner) -> None:
        """Names the learner, before it learns."""

    def start(self) -> None:
        """Says that the run starts."""

    def record_step(self, stats: StepStats) -> None:
        """Takes in a learner step. The learner's threads call it between two steps."""

    def record_gradients(self) -> None:
        """Takes in the gradients of a step. The learner's threads call it."""

    def update(self, queues: dict[str, int]) -> None:
        """Reports, evaluates and saves if it is time. To be called twice a second."""

    def announce_stop(self, signum: int) -> None:
        """Says that a signal stops the run."""

    def save(self, queues: dict[str, int], *, is_interrupted: bool) -> None:
        """Saves the run and writes its last records. The learner has ended."""

    def finish(self, is_interrupted: Callable[[], bool], signum: int | None) -> None:
        """Evaluates the final agent, unless the run was interrupted, and says how it ended.

        Raises:
            RunError: the run could not be saved.
        """

    def close(self) -> None:
        """Closes all files, and the evaluator."""


class RunOutputs(NoOutputs):
    """The outputs of a run."""

    def __init__(self, setup: Setup, state: RunState, queue_size: int) -> None:
        """Creates or resumes the run's directory.

        Args:
            setup: the run.
            state: what the run starts from.
            queue_size: rollouts that wait for the learner at most.

        Raises:
            UsageError: the directory cannot be written to, or a logger cannot be used.
        """
        self._setup = setup
        self._state = state
        self._recorder = Recorder(setup, state, queue_size)
        self._path = self._recorder.path
        self._saved = False
        self._summary: list[str] = []

    def attach(self, learner: Learner) -> None:
        self._learner = learner
        self._checkpointer = Checkpointer(
            self._path,
            self._setup,
            self._state.seed,
            learner,
            self._recorder.progress,
            self._recorder.check,
        )
        self._evaluator = AgentEvaluator(
            self._setup, self._recorder, self._checkpointer.save_agent, learner.steps
        )
        if self._state.checkpoint is not None:
            step = f"{learner.steps:,}"
            log.info("Resuming at step %s from %s", step, self._checkpointer.path)
            for change in self._state.changes:
                log.info("Changed since then: %s", change)

    def start(self) -> None:
        self._announce()
        self._evaluator.start()

    def record_step(self, stats: StepStats) -> None:
        self._recorder.record_step(stats)
        self._checkpointer.keep_copy_if_due(stats)
        self._evaluator.request_if_due(stats)

    def record_gradients(self) -> None:
        self._recorder.record_gradients(self._learner)

    def update(self, queues: dict[str, int]) -> None:
        self._recorder.update(queues, self._learner)
        self._evaluator.update()
        self._checkpointer.save_if_due()

    def announce_stop(self, signum: int) -> None:
        log.info(
            "%s: saving the run (%s)",
            "Ctrl-C" if signum == signal.SIGINT else signal.Signals(signum).name,
            StopSignals.HINT,
        )

    def save(self, queues: dict[str, int], *, is_interrupted: bool) -> None:
        if is_interrupted:
            self._evaluator.disconnect()
        self._saved = self._checkpointer.save()
        self._summary = self._recorder.finish(queues, self._learner)

    def finish(self, is_interrupted: Callable[[], bool], signum: int | None) -> None:
        if not is_interrupted():
            self._evaluator.finish(self._learner, is_interrupted)
        for line in [*self._summary, *self._evaluator.summary()]:
            print(line)
        print(f"{self._learner.steps:,} steps; run in {self._path}", flush=True)
        if signum is not None and self._saved:
            print(self._describe_saved(), flush=True)
        if not self._saved:
            error = "the last steps are not saved"
            if signum is None:
                raise RunError(error)
            log.error("%s", error[0].upper() + error[1:])

    def close(self) -> None:
        self._evaluator.close()
        self._recorder.close()

    def _announce(self) -> None:
        """Logs where the run is, what it runs on and what to expect."""
        setup, config = self._setup, self._setup.config
        log.info("Run %s in %s", setup.xpid, self._path)
        actors = counted(setup.num_actors, "actor")
        each = f"{setup.ranks.count} ranks, each with " if setup.ranks.count > 1 else ""
        log.info("%s%s, %s, %s", each, actors, setup.plan, setup.devices)
        if len(set(setup.shares)) > 1:
            names = map(short_name, config.games)
            counts = ", ".join(f"{n} {share}" for n, share in zip(names, setup.shares, strict=True))
            log.info("Unequal numbers of environments per game: %s", counts)
        log.info("Curves: tensorboard --logdir %s", self._path.parent)
        expected = find_expectation(config, setup.ranks.count)
        if expected is not None:
            log.info("What to expect of %s: %s", short_name(config.games[0]), expected)

    def _describe_saved(self) -> str:
        if self._checkpointer.saved_step is None:
            return "Nothing was saved: " + (
                "--disable_checkpoint was given"
                if self._setup.config.output.disable_checkpoint
                else "the agent had not learned from any step yet"
            )
        return (
            f"Saved {self._checkpointer.path} at step {self._checkpointer.saved_step:,}.\n"
            f"To resume, run the same command with --xpid {self._setup.xpid}"
        )
