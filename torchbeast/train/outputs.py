"""What a training run gives to its user: records, checkpoints, evaluations and messages."""

from __future__ import annotations

import contextlib
import logging
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

from torchbeast.cli.flags import DEFAULT_SAVEDIR
from torchbeast.core.learner import Learner
from torchbeast.core.stats import StepStats
from torchbeast.core.types import RunError
from torchbeast.envs.games import is_custom, short_name
from torchbeast.envs.preprocessing import PROFILES
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.text import counted, python_command
from torchbeast.train.checkpointer import Checkpointer
from torchbeast.train.evaluation import AgentEvaluator
from torchbeast.train.plan import RunPlan
from torchbeast.train.recorder import Recorder
from torchbeast.train.start import RunState

log = logging.getLogger("torchbeast")

# From so many on, a CPU is large enough for the default preset.
MANY_CORES = 8


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
            state: what the run starts from.

        Raises:
            UsageError: the directory cannot be written to, or a logger cannot be used.
        """
        self._plan = plan
        self._state = state
        self._recorder = Recorder(plan, state)
        self._closing = contextlib.ExitStack()
        self._closing.callback(self._recorder.close)
        self._path = self._recorder.path
        self._saved = False

    def attach(self, learner: Learner) -> None:
        """Sets the learner, before it learns."""
        self._learner = learner
        self._checkpointer = Checkpointer(
            self._path, self._plan, self._state.seed, learner, self._recorder.progress
        )
        self._evaluator = AgentEvaluator(self._plan, self._recorder, self._checkpointer.save_agent)
        self._closing.callback(self._evaluator.close)
        if self._state.checkpoint is not None:
            step = f"{learner.steps:,}"
            log.info("Resuming at step %s from %s", step, self._checkpointer.path)
            for change in self._state.changes:
                log.info("Changed since then: %s", change)
            if learner.is_over:
                log.info("All steps are done: a larger --total_steps continues the run")

    def start(self) -> None:
        """Logs where the run is, what it runs on and what to expect."""
        plan, config = self._plan, self._plan.config
        log.info("Run %s in %s", plan.xpid, self._path)
        actors = counted(plan.num_actors, "actor")
        each = f"{plan.ranks.count} ranks, each with " if plan.ranks.count > 1 else ""
        servers = counted(len(plan.servers), "environment server") + ", " if plan.servers else ""
        log.info("%s%s, %s%s, %s", each, actors, servers, plan.threads, plan.devices)
        on_few_cores = plan.devices.learner.type == "cpu" and plan.cores < MANY_CORES
        if config.preset == "default" and on_few_cores:
            log.info("--preset default is for many cores or a GPU; --preset small is for two cores")
        if len(set(plan.shares)) > 1:
            names = map(short_name, config.games)
            counts = ", ".join(f"{n} {share}" for n, share in zip(names, plan.shares, strict=True))
            log.info("Unequal numbers of environments per game: %s", counts)
        if any(map(is_custom, config.games)):
            log.info("Observations: channels, height and width %s", plan.agent.observation_shape)
        profile = config.observation.preprocessing
        has_sticky_actions = PROFILES[profile].sticky_action_probability > 0
        game = next((game for game in config.games if game.startswith("ALE/")), None)
        if game is not None and not has_sticky_actions:
            log.info("%s: --preprocessing %s has no sticky actions; machado has", game, profile)
        directory = shlex.quote(str(self._path.parent))
        log.info("Curves: %s -m tensorboard.main --logdir %s", python_command(), directory)

    def record_step(self, stats: StepStats) -> None:
        """Takes in a learner step. The learner's threads call it between two steps."""
        self._recorder.record_step(stats)
        self._checkpointer.keep_copy_if_due(stats)
        self._evaluator.request_if_due(stats)

    def record_gradients(self) -> None:
        """Takes in the gradients of a step. The learner's threads call it."""
        self._recorder.record_gradients(self._learner)

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
        self._saved = self._checkpointer.save()
        if is_interrupted:
            self._evaluator.close()
        self._recorder.finish(queues, self._learner)

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        """Evaluates the final agent, unless the run was interrupted, and says how it ended.

        Raises:
            RunError: the run could not be saved.
        """
        interrupted = is_interrupted()
        if not interrupted:
            self._evaluator.finish(self._learner, is_interrupted)
        for line in [*self._recorder.progress.summary(), *self._evaluator.summary()]:
            print(line)
        print(f"{self._learner.steps:,} steps; run in {self._path}", flush=True)
        if not self._saved:
            if not is_interrupted():
                raise RunError("the last steps are not saved")
            log.error("The last steps are not saved")
        elif interrupted:
            print(self._describe_saved(), flush=True)
        elif self._checkpointer.saved_step is not None:
            print(describe_next(self._plan), flush=True)

    def record_error(self, error: BaseException) -> None:
        """Writes what ended the run to out.log. The command line shows it to the user."""
        self._recorder.record_error(error)

    def close(self) -> None:
        """Closes all files, and the evaluator."""
        self._closing.close()

    def _describe_saved(self) -> str:
        if self._checkpointer.saved_step is None:
            return "There is no model.tar: " + (
                "--disable_checkpoint was given"
                if self._plan.config.output.disable_checkpoint
                else "the agent had not learned from any step yet"
            )
        return (
            f"Saved {self._checkpointer.path} at step {self._checkpointer.saved_step:,}.\n"
            f"To resume, run the same command with --xpid {shlex.quote(self._plan.xpid)}"
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
    python = python_command()
    return "\n".join(
        [
            "Next:",
            f"  {python} -m torchbeast.polybeast --mode test {flags}{every}",
            f"  {python} -m torchbeast.polybeast --mode record {flags}{one}",
            f"  {python} -m torchbeast.saliency {flags}{one}",
        ]
    )
