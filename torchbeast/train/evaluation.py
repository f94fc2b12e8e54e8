"""Evaluation of the agent while it trains: when it is due, who plays, what becomes of the scores.

The evaluator (:mod:`torchbeast.train.evaluator`) is a separate process that a run starts. It plays
games with checkpoints that the run names. Messages are the NamedTuples below, and the scores of
:mod:`torchbeast.records.scores`.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torchbeast.core.learner import Learner, StepStats
from torchbeast.envs.games import short_name
from torchbeast.records.scores import POLICIES, Evaluation, GameScore
from torchbeast.train.checkpointer import passed_multiple
from torchbeast.train.plan import RunPlan
from torchbeast.train.recorder import Recorder

log = logging.getLogger("torchbeast")

# How long the process gets to remove unfinished files. It answers within a step of its games.
EXIT_TIMEOUT_S = 0.5
# Where cores are scarce, training goes first.
NICENESS = 10


class Request(NamedTuple):
    """To the evaluator: evaluate an agent. It answers with scores, failures and one Finished."""

    checkpoint: Path
    directory: Path
    """The run's directory, for films."""
    xpid: str
    step: int
    agent_type: str
    """The class of the agent, which may be the user's own."""
    games: tuple[str, ...]
    """The games of the run."""
    num_episodes: int
    """Full games per game and policy; 0: no scores."""
    film: bool


class Failure(NamedTuple):
    """From the evaluator: something could not be done."""

    what: str
    reason: str


class Notice(NamedTuple):
    """From the evaluator: what it logs."""

    text: str


class Alive(NamedTuple):
    """From the evaluator, while it works: that it does not hang."""


class Finished(NamedTuple):
    """From the evaluator: a request is done."""

    step: int


class EvaluatorProcess:
    """Starts and ends the evaluator's process, and exchanges messages with it.

    The process is a fresh interpreter, so that it inherits neither threads nor gRPC objects. It is
    in a new session: Ctrl-C reaches the trainer alone. It ends when its connection does, and
    so with the trainer, however that ends.

    One thread may send while another receives. Messages are small: sending does not wait.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._sending = threading.Lock()  # So that the connection is not closed meanwhile.
        self.heard_at = 0.0
        """When something was received last, by time.monotonic."""

    def start(self, niceness: int = NICENESS) -> None:
        """Starts the process, from the main thread: on Linux it ends with the thread, too.

        Args:
            niceness: how much lower than the trainer's its priority is.

        Raises:
            OSError: the machine has no process or no file descriptor left.
        """
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            arguments = f"{theirs.fileno()}, niceness={niceness}"
            code = f"from torchbeast.train.evaluator import serve; serve({arguments})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # A single thread is wanted everywhere; libraries read this when they are loaded.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def send(self, message: Request) -> bool:
        """Returns False if the process is gone."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            return False
        return True

    def receive(self, timeout: float = 0.0) -> Any:
        """Waits for a message.

        Args:
            timeout: seconds.

        Returns:
            The message; None if none came in time.

        Raises:
            EOFError: the process is gone.
        """
        try:
            if not self._connection.poll(timeout):
                return None
            message = self._connection.recv()
        except OSError as error:
            raise EOFError from error
        self.heard_at = time.monotonic()
        return None if isinstance(message, Alive) else message

    def exit_code(self) -> int | None:
        """Returns the exit code of a process that is gone; None if it does not end."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(EXIT_TIMEOUT_S)
        return None

    def disconnect(self) -> None:
        """Makes the process end soon."""
        if self._connection is not None:
            with self._sending:
                self._connection.close()

    def close(self) -> None:
        """Ends the process, within ``EXIT_TIMEOUT_S`` whatever it does."""
        self.disconnect()
        if self._process is not None and self.exit_code() is None:
            self._process.kill()
            self._process.wait()


# The agent that is being evaluated; in the run's directory, removed when the run ends.
CHECKPOINT_NAME = "evaluated.tar"
# How often the last evaluation's scores are asked for, and with that whether the user has left.
POLL_INTERVAL_S = 0.2
# An evaluator that is silent for so long hangs, unless a step may take longer.
HANG_S = 300.0
# A run of days should not lose its evaluations to a process that was killed once.
MAX_RESTARTS = 3
MAX_LISTED_GAMES = 8


class Job(NamedTuple):
    """What is done with an agent."""

    score: bool
    film: bool


class AgentEvaluator:
    """Has the agent evaluated and filmed every so many steps, by one process.

    While that is busy, what is due is left out: steps of evaluations are comparable between runs,
    and training never waits. A failure is reported and never ends the run.

    The learner's threads call :meth:`request_if_due`, the main thread all else.
    """

    def __init__(
        self,
        plan: RunPlan,
        recorder: Recorder,
        save_agent: Callable[[Path], bool],
        first_step: int,
    ) -> None:
        """Starts nothing yet.

        Args:
            plan: the run.
            recorder: writes the scores.
            save_agent: writes the agent's checkpoint; False if that fails.
            first_step: agent steps before the first of this process.
        """
        self._schedule = plan.config.evaluation
        self._games = plan.config.games
        self._agent_type = plan.config.network.agent_type
        self._hang_s = max(HANG_S, plan.config.step_timeout_s)
        self._recorder = recorder
        self._save_agent = save_agent
        self._checkpoint = recorder.path / CHECKPOINT_NAME
        self._process = EvaluatorProcess()
        self._is_alive = False
        self._is_busy = False
        self._restarts = 0
        self._requested_at = 0.0
        # The last request. Do not evaluate the initial agent.
        self._job = Job(score=True, film=True)
        self._step, self._seconds = first_step, 0.0
        self._scores: list[GameScore] = []
        self._reported: set[str] = set()

    def start(self) -> None:
        """Starts the process if anything is ever due."""
        if any(self._schedule.intervals):
            self._start_process()

    def _start_process(self) -> None:
        try:
            self._process.start()
            self._is_alive = True
        except OSError as error:
            log.error("The evaluator cannot start (%s); training continues without it", error)

    def request_if_due(self, stats: StepStats) -> None:
        """Asks for what is due after a learner step.

        The learner calls this between two steps, while its weights do not change.
        """
        if not self._is_alive:
            return
        job = Job(*(passed_multiple(stats, i) for i in self._schedule.intervals))
        if not any(job):
            return
        if self._is_busy:
            self._report_once(
                "busy",
                f"Nothing is evaluated at step {stats.steps:,}: the evaluation of step "
                f"{self._step:,} is not finished. Fewer --evaluation_episodes or longer intervals "
                "help",
            )
            return
        self._request(job, stats.steps, self._recorder.progress.seconds())

    def update(self, timeout: float = 0.0) -> None:
        """Takes in what the process sent.

        Args:
            timeout: seconds to wait for it.
        """
        while self._is_alive:
            try:
                message = self._process.receive(timeout)
            except EOFError:
                self._replace(f"ended (exit code {self._process.exit_code()})")
                return
            if message is None:
                if self._is_busy and self._silence() > self._hang_s:
                    self._replace(f"has hung for {self._hang_s:g} s")
                return
            self._take(message)
            timeout = 0.0

    def _silence(self) -> float:
        """Seconds since the process was asked or said something."""
        return time.monotonic() - max(self._requested_at, self._process.heard_at)

    def _replace(self, what_happened: str) -> None:
        """Starts a process in the place of one of no use. What that was doing is left out."""
        self._is_alive = self._is_busy = False
        self._scores = []
        self._job = Job(score=False, film=False)  # It is not done.
        if self._restarts == MAX_RESTARTS:
            log.error("The evaluator %s; training continues without it", what_happened)
            return
        self._restarts += 1
        log.error(
            "The evaluator %s, restarting it (%s of %s times)",
            what_happened,
            self._restarts,
            MAX_RESTARTS,
        )
        self._process.close()
        self._start_process()

    def finish(self, learner: Learner, is_stopped: Callable[[], bool]) -> None:
        """Evaluates the final agent.

        Args:
            learner: has the agent.
            is_stopped: whether the user does not want to wait for it.
        """
        seconds = self._recorder.progress.seconds()
        self.update()
        if not self._is_alive or not (self._is_busy or any(self._left(learner.steps))):
            return
        log.info("Evaluating the final agent (Ctrl-C ends this)")
        self._await(is_stopped)
        wanted = self._left(learner.steps)
        if self._is_alive and any(wanted) and not is_stopped():
            self._request(wanted, learner.steps, seconds)
            self._await(is_stopped)

    def _left(self, step: int) -> Job:
        """Returns what is wanted of the agent of a step and was not asked for."""
        wanted = Job(*(interval > 0 for interval in self._schedule.intervals))
        if self._step != step:
            return wanted
        return Job(*(x and not done for x, done in zip(wanted, self._job, strict=True)))

    def disconnect(self) -> None:
        """Makes the process end soon."""
        self._is_alive = False
        self._process.disconnect()

    def close(self) -> None:
        """Ends the process and removes its checkpoint."""
        self.disconnect()
        self._process.close()
        self._checkpoint.unlink(missing_ok=True)

    def summary(self) -> list[str]:
        """Returns lines about the newest evaluation; none if there was none."""
        evaluation = self._recorder.evaluation
        return [] if evaluation is None else describe(evaluation)

    def _request(self, job: Job, step: int, seconds: float) -> None:
        if not self._save_agent(self._checkpoint):
            return  # It has been reported.
        self._job, self._step, self._seconds = job, step, seconds
        request = Request(
            checkpoint=self._checkpoint,
            directory=self._recorder.path,
            xpid=self._recorder.path.name,
            step=step,
            agent_type=self._agent_type,
            games=self._games,
            num_episodes=self._schedule.evaluation_episodes if job.score else 0,
            film=job.film,
        )
        self._requested_at = time.monotonic()
        self._is_busy = True  # Before the answer can come.
        if not self._process.send(request):
            self._is_busy = False

    def _await(self, is_stopped: Callable[[], bool]) -> None:
        while self._is_busy and not is_stopped():
            if self._silence() > self._hang_s - POLL_INTERVAL_S:  # Else update() replaces it.
                log.error("The evaluator has hung for %g s; the run ends without it", self._hang_s)
                self.disconnect()
                return
            self.update(POLL_INTERVAL_S / 2)

    def _take(self, message: GameScore | Failure | Notice | Finished) -> None:
        if isinstance(message, GameScore):
            self._recorder.record_score(self._step, self._seconds, message)
            self._scores.append(message)
        elif isinstance(message, Failure):
            self._report_once(message.what, f"{message.what} failed: {message.reason}")
        elif isinstance(message, Notice):
            log.warning("%s", message.text)
        else:
            if self._scores:
                self._recorder.record_evaluation(Evaluation(message.step, tuple(self._scores)))
            self._scores = []
            self._is_busy = False

    def _report_once(self, kind: str, text: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            log.warning("%s", text)


def describe(evaluation: Evaluation) -> list[str]:
    """Returns lines that tell an evaluation: one per policy, with the returns of a few games."""
    lines = []
    for policy in POLICIES:
        scores = evaluation.select(policy)
        parts = [f"{short_name(s.env)} {s.mean:.2f}" for s in scores]
        if len(parts) > MAX_LISTED_GAMES:
            parts = [f"{len(parts)} games in scores.csv"]
        normalized = evaluation.normalized(policy)
        if normalized is not None:
            parts.append(
                f"human-normalised median {normalized.median:.1%}, mean {normalized.mean:.1%} "
                f"over {normalized.games} of {len(scores)} games"
            )
        lines.append(f"Step {evaluation.step:,}, {policy} actions: {', '.join(parts)}")
    return lines
