"""Evaluation of the agent while it trains: when it is due, who plays, what becomes of the scores.

Each evaluation is a process of its own, which plays with a checkpoint at low priority.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from torchbeast.core.learner import Learner
from torchbeast.core.stats import StepStats
from torchbeast.core.types import RunError
from torchbeast.envs.games import short_name
from torchbeast.records.scores import POLICIES, Evaluation, GameScore, normalize
from torchbeast.runtime.alarm import alarm, describe_end, set_alarm
from torchbeast.runtime.text import typed_line
from torchbeast.runtime.workers import begin_worker, fork_context, start_with_pipe
from torchbeast.train.checkpointer import passed_multiple
from torchbeast.train.plan import RunPlan
from torchbeast.train.recorder import Recorder

log = logging.getLogger("torchbeast")

# The agent that is being evaluated; in the run's directory, removed when the run ends.
CHECKPOINT_NAME = "evaluated.tar"
# The same games and random numbers in every evaluation: differences are the agent's.
SEED = 0
# Where cores are scarce, training goes first.
NICENESS = 10
# How often the last evaluation's scores are asked for, and with that whether the user has left.
POLL_INTERVAL_S = 0.2
# A step of all games that takes longer hangs, unless --step_timeout_s allows more.
HANG_S = 300.0
MAX_LISTED_GAMES = 8


class Request(NamedTuple):
    """What the process of an evaluation does."""

    checkpoint: Path
    agent_type: str
    """The class of the agent, which may be the user's own."""
    games: tuple[str, ...]
    num_episodes: int
    """Full games per game and policy."""


class Result(NamedTuple):
    """What it answers."""

    scores: tuple[GameScore, ...]
    failures: tuple[str, ...]


def evaluate(request: Request, after_step: Callable[[], None]) -> Result:
    """Plays full games of every game, greedy and with sampled actions.

    ``after_step`` is called after each step.
    """
    # Imported late: a short run need not wait for it.
    import torch

    from torchbeast.play.agents import read_agent
    from torchbeast.play.game_loop import play
    from torchbeast.play.testing import summarize

    torch.set_num_threads(1)
    try:
        trained = read_agent(request.checkpoint, agent_type=request.agent_type)
    except Exception as error:
        return Result((), (f"Loading the agent failed: {typed_line(error)}",))
    scores, failures = [], []
    for game in request.games:
        for greedy in (True, False):
            try:
                episodes = play(
                    trained,
                    game,
                    request.num_episodes,
                    greedy=greedy,
                    seed=SEED,
                    after_step=after_step,
                )
                scores.append(summarize(list(episodes), greedy=greedy))
            except Exception as error:
                failures.append(f"The evaluation of {game} failed: {typed_line(error)}")
    return Result(tuple(scores), tuple(failures))


def _serve(request: Request, timeout_s: float, connection: Connection) -> None:
    begin_worker(NICENESS, SEED)
    # The terminal is the trainer's.
    logging.getLogger("torchbeast").addHandler(logging.NullHandler())
    with alarm(timeout_s):
        result = evaluate(request, lambda: set_alarm(timeout_s))
    connection.send(result)


class AgentEvaluator:
    """Has the agent evaluated every so many steps.

    While an evaluation is under way, the next is left out: steps of evaluations are comparable
    between runs, and training waits for no more than the agent's checkpoint. A failure is reported
    and never ends the run.

    The learner's threads call :meth:`request_if_due`, the main thread all else.
    """

    def __init__(
        self,
        plan: RunPlan,
        recorder: Recorder,
        save_agent: Callable[[Path], bool],
    ) -> None:
        """Makes an evaluator, which plays nothing before :meth:`request_if_due`.

        Args:
            save_agent: writes the agent's checkpoint; False if that fails.
        """
        self._interval = plan.config.evaluation.evaluate_every
        self._recorder = recorder
        self._save_agent = save_agent
        self._request = Request(
            checkpoint=recorder.path / CHECKPOINT_NAME,
            agent_type=plan.config.network.agent_type,
            games=plan.config.games,
            num_episodes=plan.config.evaluation.evaluation_episodes,
        )
        self._is_waiting = False
        """Whether the checkpoint is there, and its evaluation has not begun."""
        self._process: Any = None
        self._connection: Any = None
        self._context = fork_context()
        self._timeout_s = max(HANG_S, plan.config.step_timeout_s)
        # When the last evaluation was. One that was cut off left no scores.
        self._step, self._seconds = recorder.evaluated_step, 0.0
        self._reported: set[str] = set()
        self._newest: Evaluation | None = None

    def request_if_due(self, stats: StepStats) -> None:
        """Saves the agent for an evaluation if one is due after a learner step.

        The learner calls this between two steps, while its weights do not change.
        """
        if not passed_multiple(stats, self._interval):
            return
        if self._is_busy:
            self._report_once(
                "busy",
                f"Nothing is evaluated at step {stats.steps:,}: the evaluation of step "
                f"{self._step:,} is not finished. Fewer --evaluation_episodes or longer intervals "
                "help",
            )
            return
        self._prepare(stats.steps, self._recorder.progress.seconds())

    def update(self) -> None:
        """Starts the evaluation that was asked for, or takes in its scores."""
        if self._process is None:
            if self._is_waiting:
                self._start()
            return
        # The pipe alone does not tell: a process that an environment started may hold it open.
        has_ended = self._process.exitcode is not None
        try:
            if self._connection.poll():
                self._record(self._connection.recv())
            elif has_ended:
                raise EOFError
            else:
                return
        except (EOFError, OSError):
            self._process.join()
            reason = describe_end(self._process.exitcode, self._timeout_s)
            log.error("The evaluation of step %s %s", f"{self._step:,}", reason)
        self._end()

    def finish(self, learner: Learner, is_stopped: Callable[[], bool]) -> None:
        """Evaluates the final agent.

        Args:
            is_stopped: whether the user does not want to wait for it.
        """
        if not self._interval or (not self._is_busy and self._step == learner.steps):
            return
        seconds = self._recorder.progress.seconds()
        log.info("Evaluating the final agent (Ctrl-C ends this)")
        self._await(is_stopped)
        if self._step != learner.steps and not is_stopped():
            self._prepare(learner.steps, seconds)
            self._await(is_stopped)

    def close(self) -> None:
        """Ends what is under way and removes the checkpoint."""
        self._is_waiting = False
        self._end()
        with contextlib.suppress(OSError):
            self._request.checkpoint.unlink()

    def summary(self) -> list[str]:
        """Returns lines about the newest evaluation; none if there was none."""
        return [] if self._newest is None else describe(self._newest)

    @property
    def _is_busy(self) -> bool:
        return self._is_waiting or self._process is not None

    def _prepare(self, step: int, seconds: float) -> None:
        if self._save_agent(self._request.checkpoint):  # Else it has been reported.
            self._step, self._seconds = step, seconds
            self._is_waiting = True

    def _start(self) -> None:
        try:
            # Daemons may not have children, which environments may start.
            self._process, self._connection = start_with_pipe(
                self._context, _serve, self._request, self._timeout_s, daemon=False
            )
        except (OSError, RunError) as error:  # No process or file descriptor is left.
            self._report_once("start", f"The evaluation cannot start: {error}")
        self._is_waiting = False

    def _end(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None

    def _record(self, result: Result) -> None:
        for failure in result.failures:
            self._report_once(failure, failure)
        if result.scores:
            self._newest = Evaluation(self._step, result.scores)
            self._recorder.record_evaluation(self._newest, self._seconds)

    def _await(self, is_stopped: Callable[[], bool]) -> None:
        while self._is_busy and not is_stopped():
            self.update()
            if self._process is not None:
                self._connection.poll(POLL_INTERVAL_S)

    def _report_once(self, kind: str, text: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            log.warning("%s", text)


def describe(evaluation: Evaluation) -> list[str]:
    """Returns lines that tell an evaluation: one per policy, with the returns of a few games."""
    lines = []
    for policy in POLICIES:
        scores = evaluation.select(policy)
        if not scores:  # All games failed; the log says why.
            continue
        parts = [f"{short_name(s.env)} {s.mean:.2f}" for s in scores]
        if len(parts) > MAX_LISTED_GAMES:
            parts = [f"{len(parts)} games in scores.csv"]
        normalized = normalize(scores)
        if normalized is not None:
            parts.append(
                f"human-normalised median {normalized.median:.1%}, mean {normalized.mean:.1%} "
                f"over {normalized.games} of {len(scores)} games"
            )
        lines.append(f"Step {evaluation.step:,}, {policy} actions: {', '.join(parts)}")
    return lines
