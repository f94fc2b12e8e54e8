"""A training run: its learner, its published weights, and what it gives to its user.

Of several ranks the first one has all outputs; the others have :class:`NoOutputs`.
"""

from __future__ import annotations

import logging
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchbeast.cli.flags import DEFAULT_SAVEDIR
from torchbeast.core.learner import Learner, rollouts_at_once
from torchbeast.core.stats import StepStats
from torchbeast.core.types import RunError
from torchbeast.envs.games import is_custom, short_name
from torchbeast.envs.preprocessing import PROFILES
from torchbeast.records.hosts import HostSnapshot
from torchbeast.runtime.precision import keep_freed_pages
from torchbeast.runtime.text import counted, typed_line
from torchbeast.runtime.threads import StopSignals, Threads
from torchbeast.train.checkpointer import Checkpointer
from torchbeast.train.evaluation import AgentEvaluator
from torchbeast.train.plan import RunPlan
from torchbeast.train.recorder import Recorder
from torchbeast.train.start import RunState, check_recipe, make_learner, recipe, resume_or_start

log = logging.getLogger("torchbeast")


class NoOutputs:
    """The outputs of a rank that is not the first: each method does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Returns what takes the place of each method of :class:`RunOutputs`."""
        return lambda *_, **__: None


class RunOutputs:
    """The outputs of a run."""

    def __init__(self, plan: RunPlan, state: RunState) -> None:
        """Creates or resumes the run's directory.

        Args:
            plan: the run.
            state: what the run starts from.

        Raises:
            UsageError: the directory cannot be written to, or a logger cannot be used.
        """
        self._plan = plan
        self._state = state
        self._recorder = Recorder(plan, state)
        self._path = self._recorder.path
        self._saved = False
        self._summary: list[str] = []

    def attach(self, learner: Learner) -> None:
        """Sets the learner, before it learns."""
        self._learner = learner
        self._checkpointer = Checkpointer(
            self._path, self._plan, self._state.seed, learner, self._recorder.progress
        )
        self._evaluator = AgentEvaluator(
            self._plan, self._recorder, self._checkpointer.save_agent, learner.steps
        )
        if self._state.checkpoint is not None:
            step = f"{learner.steps:,}"
            log.info("Resuming at step %s from %s", step, self._checkpointer.path)
            for change in self._state.changes:
                log.info("Changed since then: %s", change)

    def start(self) -> None:
        """Logs where the run is, what it runs on and what to expect."""
        plan, config = self._plan, self._plan.config
        log.info("Run %s in %s", plan.xpid, self._path)
        actors = counted(plan.num_actors, "actor")
        each = f"{plan.ranks.count} ranks, each with " if plan.ranks.count > 1 else ""
        servers = counted(len(plan.servers), "environment server") + ", " if plan.servers else ""
        log.info("%s%s, %s%s, %s", each, actors, servers, plan.threads, plan.devices)
        if len(set(plan.shares)) > 1:
            names = map(short_name, config.games)
            counts = ", ".join(f"{n} {share}" for n, share in zip(names, plan.shares, strict=True))
            log.info("Unequal numbers of environments per game: %s", counts)
        if any(map(is_custom, config.games)):
            log.info("Observations: %d channels of %d x %d", *plan.agent.observation_shape)
        profile = config.observation.preprocessing
        sticky = PROFILES[profile].sticky_action_probability > 0
        for game in [g for g in config.games if g.startswith("ALE/") and not sticky][:1]:
            log.info("%s: --preprocessing %s has no sticky actions; machado has", game, profile)
        log.info("Curves: tensorboard --logdir %s", self._path.parent)

    def record_step(self, stats: StepStats) -> None:
        """Takes in a learner step. The learner's threads call it between two steps."""
        self._recorder.record_step(stats)
        self._checkpointer.keep_copy_if_due(stats)
        self._evaluator.request_if_due(stats)

    def record_gradients(self) -> None:
        """Takes in the gradients of a step. The learner's threads call it."""
        self._recorder.record_gradients(self._learner)

    def set_hosts(self, hosts: Callable[[], tuple[HostSnapshot, ...]]) -> None:
        """Sets the function that says what each host has contributed."""
        self._recorder.hosts = hosts

    def update(self, queues: dict[str, int]) -> None:
        """Reports, evaluates and saves if it is time. To be called twice a second."""
        self._recorder.update(queues, self._learner)
        self._evaluator.update()
        self._checkpointer.save_if_due()

    def announce_stop(self, signum: int) -> None:
        """Says that a signal stops the run."""
        log.info(
            "%s: saving the run (%s)",
            "Ctrl-C" if signum == signal.SIGINT else signal.Signals(signum).name,
            StopSignals.HINT,
        )

    def save(self, queues: dict[str, int], *, is_interrupted: bool) -> None:
        """Saves the run and writes its last records. The learner has ended."""
        if is_interrupted:
            self._evaluator.close()
        self._saved = self._checkpointer.save()
        self._summary = self._recorder.finish(queues, self._learner)

    def finish(self, is_interrupted: Callable[[], bool], signum: int | None) -> None:
        """Evaluates the final agent, unless the run was interrupted, and says how it ended.

        Raises:
            RunError: the run could not be saved.
        """
        if not is_interrupted():
            self._evaluator.finish(self._learner, is_interrupted)
        for line in [*self._summary, *self._evaluator.summary()]:
            print(line)
        print(f"{self._learner.steps:,} steps; run in {self._path}", flush=True)
        if signum is not None and self._saved:
            print(self._describe_saved(), flush=True)
        elif self._saved and self._checkpointer.saved_step is not None:
            print(describe_next(self._plan), flush=True)
        if not self._saved:
            error = "the last steps are not saved"
            if signum is None:
                raise RunError(error)
            log.error("%s", error[0].upper() + error[1:])

    def close(self) -> None:
        """Closes all files, and the evaluator."""
        self._evaluator.close()
        self._recorder.close()

    def _describe_saved(self) -> str:
        if self._checkpointer.saved_step is None:
            return "Nothing was saved: " + (
                "--disable_checkpoint was given"
                if self._plan.config.output.disable_checkpoint
                else "the agent had not learned from any step yet"
            )
        return (
            f"Saved {self._checkpointer.path} at step {self._checkpointer.saved_step:,}.\n"
            f"To resume, run the same command with --xpid {self._plan.xpid}"
        )


def describe_next(plan: RunPlan) -> str:
    """Returns the commands that score, film and explain the agent of a finished run."""
    output, games = plan.config.output, plan.config.games
    flags = f"--xpid {shlex.quote(plan.xpid)}"
    if Path(output.savedir) != Path(DEFAULT_SAVEDIR).expanduser():
        flags += f" --savedir {shlex.quote(str(output.savedir))}"
    one = f" --env {games[0]}" if len(games) > 1 or is_custom(games[0]) else ""
    every = f" --env {','.join(games)}" if any(map(is_custom, games)) else ""
    if ":" in plan.agent.agent_type:
        flags += f" --agent_type {plan.agent.agent_type}"
    return "\n".join(
        [
            "Next:",
            f"  python -m torchbeast.polybeast --mode test {flags}{every}",
            f"  python -m torchbeast.polybeast --mode record {flags}{one}",
            f"  python -m torchbeast.saliency {flags}{one}",
        ]
    )


# How long threads get to finish what they are at when a run ends.
JOIN_TIMEOUT_S = 3.0
# How long the ranks of an interrupted run get for a last step together. torchrun kills after 30.
LAST_STEP_TIMEOUT_S = 15.0
# Between the seeds of two ranks: each plays games of its own.
RANK_SEEDS = 1_000_003


class TrainingRun:
    """Agent, learner, published weights and outputs of one run, or of one rank of it.

    A context manager: inside it a signal ends :meth:`watch` instead of the process.
    """

    def __init__(
        self,
        plan: RunPlan,
        signals: StopSignals,
        make_weights: Callable[[Any], Any],
    ) -> None:
        """Loads the run's checkpoint or makes a new agent.

        Args:
            plan: the run.
            signals: requests to stop.
            make_weights: builds the object that publishes the agent's weights to those who act,
                from the agent.

        Raises:
            UsageError: the run cannot be resumed, or its directory cannot be written to.
        """
        self._plan = plan
        self._signals = signals
        self.threads = Threads()
        keep_freed_pages()
        # One core for each learner and inference thread: see prepare().
        torch.set_num_threads(1)
        self._make_learner()
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

    def _make_learner(self) -> None:
        """Makes learner and outputs. The first rank's state is everybody's."""
        plan, ranks = self._plan, self._plan.ranks
        self._outputs: RunOutputs | NoOutputs
        if ranks.is_first:
            # Before anything is written: a run that cannot be resumed is left as it is.
            state = resume_or_start(plan)
            self._outputs = RunOutputs(plan, state)
        else:
            contents = ranks.broadcast(None)
            check_recipe(contents["recipe"], recipe(plan.config))
            state = RunState(contents["seed"], contents)
            self._outputs = NoOutputs()
        tracks = plan.config.output.track_gradients
        on_gradients = self._outputs.record_gradients if tracks else lambda: None
        self.learner = make_learner(plan, state, self._on_step, on_gradients)
        if ranks.count > 1 and ranks.is_first:
            shared = {"seed": state.seed, "recipe": recipe(plan.config)}
            ranks.broadcast({**self.learner.state_dict(), **shared})
        self._outputs.attach(self.learner)
        self._seed = state.seed + RANK_SEEDS * ranks.index
        if not ranks.is_first:
            torch.manual_seed(self._seed)  # Else all would sample actions with the same numbers.

    def __enter__(self) -> TrainingRun:
        self._signals.__enter__()  # From here on there is something to save.
        self._outputs.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._outputs.close()
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
        hosts: Callable[[], tuple[HostSnapshot, ...]] = lambda: (),
    ) -> int:
        """Reports and saves until all steps are done, a signal comes or something fails.

        Args:
            check: called twice a second; what it raises ends the run.
            queues: sizes of the queues, for the records.
            stop: makes the threads end.
            hosts: what each machine with environment servers has contributed, for the records.

        Returns:
            The exit code. Raises the first error of any thread.
        """
        self._outputs.set_hosts(hosts)
        try:
            while not self._is_over():
                self.threads.changed.wait(timeout=0.5)
                self.threads.changed.clear()
                check()
                self._outputs.update(queues())
        finally:
            if self._signals.received is not None:
                self._outputs.announce_stop(self._signals.received)
            last_queues = queues()
            self._make_last_step()
            self.learner.close()
            stop()
            self.threads.join(JOIN_TIMEOUT_S)
            self._save(last_queues)
        signum = self._signals.received
        if self.threads.error is not None and signum is None:
            raise self._find_reason(self.threads.error)
        self._outputs.finish(self._is_interrupted, signum)
        if self.threads.error is not None:  # It came beside a signal.
            raise self._find_reason(self.threads.error)
        if signum is None and self.learner.is_stopped:
            raise RunError("another rank stopped the run")
        return 0 if signum is None else 128 + signum

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
