"""A run from its first step, or from its last checkpoint, to its end."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import Any

import torch

from torchbeast.core.learner import StepStats, rollouts_at_once
from torchbeast.core.precision import keep_freed_pages
from torchbeast.core.types import RunError
from torchbeast.envs.games import short_name
from torchbeast.runtime.text import counted
from torchbeast.runtime.threads import StopSignals, Threads
from torchbeast.training.checkpointer import Checkpointer
from torchbeast.training.evaluation import AgentEvaluator
from torchbeast.training.expectations import find_expectation
from torchbeast.training.recorder import Recorder
from torchbeast.training.setup import Setup
from torchbeast.training.state import RunState, make_learner, resume_or_start

log = logging.getLogger("torchbeast")

# How long threads get to finish what they are at when a run ends.
JOIN_TIMEOUT_S = 3.0


class TrainingRun:
    """Agent, learner, published weights, records and checkpoints of one run.

    A context manager: inside it a signal ends :meth:`watch` instead of the process.
    """

    def __init__(
        self,
        setup: Setup,
        signals: StopSignals,
        make_weights: Callable[[Any], Any],
        queue_size: int,
    ) -> None:
        """Loads the run's checkpoint or makes a new agent.

        Args:
            setup: the run.
            signals: requests to stop.
            make_weights: builds the object that publishes the agent's weights to those who act,
                from the agent.
            queue_size: rollouts that wait for the learner at most.

        Raises:
            UsageError: the run cannot be resumed, or its directory cannot be written to.
        """
        self._setup = setup
        self._signals = signals
        self.threads = Threads()
        keep_freed_pages()
        torch.set_num_threads(setup.plan.torch_threads)
        # Before anything is written: a run that cannot be resumed is left as it is.
        state = resume_or_start(setup)
        self._seed = state.seed
        self._recorder = Recorder(setup, state, queue_size)
        self.path = self._recorder.path
        track_gradients = setup.config.output.track_gradients
        self.learner = make_learner(
            setup,
            state,
            self._on_step,
            self._on_gradients if track_gradients else lambda: None,
        )
        self._checkpointer = Checkpointer(
            self.path, setup, state.seed, self.learner, self._recorder.progress
        )
        self._evaluator = AgentEvaluator(
            setup, self._recorder, self._checkpointer.save_agent, self.learner.steps
        )
        if state.checkpoint is not None:
            self._announce_resumption(state)
        on_cpu = setup.devices.learner.type == "cpu"
        # Rollouts that a learner thread hands to the learner at a time.
        self.rollouts_at_once = rollouts_at_once(
            setup.config.learning.batch_size,
            setup.config.learning.unroll_length,
            setup.plan.learner_threads,
            self.learner.agent.rows_at_once if on_cpu else None,
        )
        self.weights = make_weights(self.learner.agent)
        self.weights.publish(self.learner.agent, self.learner.learner_steps)

    def __enter__(self) -> TrainingRun:
        self._signals.notify = self.threads.changed.set
        self._signals.__enter__()  # From here on there is something to save.
        self._announce()
        self._evaluator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._evaluator.close()
        self._recorder.close()
        self._signals.__exit__()

    @property
    def server_seed(self) -> int:
        """The seed of the environments. A resumed run plays other games than those before."""
        return (self._seed + self.learner.steps) % 2**31

    def watch(
        self,
        check: Callable[[], None],
        queues: Callable[[], dict[str, int]],
        stop: Callable[[], None],
    ) -> int:
        """Reports and saves until all steps are done, a signal comes or something fails.

        Args:
            check: called twice a second; what it raises ends the run.
            queues: sizes of the queues, for the records.
            stop: makes the threads end.

        Returns:
            The exit code. Raises the first error of any thread.
        """
        try:
            while not self._is_over():
                self.threads.changed.wait(timeout=0.5)
                self.threads.changed.clear()
                check()
                self._recorder.update(queues(), self.learner)
                self._evaluator.update()
                self._checkpointer.save_if_due()
        finally:
            self._announce_stop()
            last_queues = queues()
            if self._is_interrupted():
                self._evaluator.disconnect()
            self.learner.close()
            stop()
            self.threads.join(JOIN_TIMEOUT_S)
            saved = self._checkpointer.save()
            summary = self._recorder.finish(last_queues, self.learner)
        if self.threads.error is not None and self._signals.received is None:
            self.learner.check_weights()  # Else sampling from NaN would be named as the reason.
            raise self.threads.error
        if not self._is_interrupted():
            self._evaluator.finish(self.learner, self._is_interrupted)
        signum = self._signals.received
        for line in [*summary, *self._evaluator.summary()]:
            print(line)
        print(f"{self.learner.steps:,} steps; run in {self.path}", flush=True)
        if signum is not None and saved:
            print(self._describe_saved(), flush=True)
        if not saved:
            error = "the last steps are not saved"
            if signum is None:
                raise RunError(error)
            log.error("%s", error[0].upper() + error[1:])
        return 0 if signum is None else 128 + signum

    def _is_interrupted(self) -> bool:
        return self._signals.received is not None or self.threads.error is not None

    def _is_over(self) -> bool:
        total_steps = self._setup.config.optimizer.total_steps
        return self._is_interrupted() or self.learner.steps >= total_steps

    def _announce_stop(self) -> None:
        signum = self._signals.received
        if signum is None:
            return
        log.info(
            "%s: saving the run (Ctrl-C again after %.0f s ends the program at once)",
            "Ctrl-C" if signum == signal.SIGINT else signal.Signals(signum).name,
            self._signals.REPEAT_S,
        )

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

    def _announce_resumption(self, state: RunState) -> None:
        log.info("Resuming at step %s from %s", f"{self.learner.steps:,}", self._checkpointer.path)
        for change in state.changes:
            log.info("Changed since then: %s", change)

    def _announce(self) -> None:
        """Logs where the run is, what it runs on and what to expect."""
        setup, config = self._setup, self._setup.config
        log.info("Run %s in %s", setup.xpid, self.path)
        actors = counted(setup.num_actors, "actor")
        log.info("%s, %s, %s", actors, setup.plan, setup.devices)
        if len(set(setup.shares)) > 1:
            names = map(short_name, config.games)
            counts = ", ".join(f"{n} {share}" for n, share in zip(names, setup.shares, strict=True))
            log.info("Unequal numbers of environments per game: %s", counts)
        log.info("Curves: tensorboard --logdir %s", self.path.parent)
        expected = find_expectation(config)
        if expected is not None:
            log.info("What to expect of %s: %s", short_name(config.games[0]), expected)

    def _on_step(self, stats: StepStats) -> None:
        self.weights.publish(self.learner.agent, stats.learner_steps)
        self._recorder.record_step(stats)
        self._checkpointer.keep_copy_if_due(stats)
        self._evaluator.request_if_due(stats)

    def _on_gradients(self) -> None:
        self._recorder.record_gradients(self.learner)
