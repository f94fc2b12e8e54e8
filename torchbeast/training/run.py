"""A run from its first step, or from its last checkpoint, to its end."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchbeast.core import checkpoint
from torchbeast.core.file_writer import FileWriter
from torchbeast.core.gradients import describe_gradients
from torchbeast.core.learner import Learner, OptimizerConfig, StepStats, rollouts_at_once
from torchbeast.core.losses import LossConfig
from torchbeast.core.precision import choose_dtype, keep_freed_pages
from torchbeast.core.presets import EXPECTATIONS
from torchbeast.core.prof import StepTrace
from torchbeast.core.progress import Progress, log_fields
from torchbeast.core.threads import StopSignals, Threads, available_cores
from torchbeast.core.types import RunError, UsageError
from torchbeast.envs.games import short_name
from torchbeast.models import AgentConfig, make_agent
from torchbeast.models.loading import find_agent_type
from torchbeast.training.beginning import begin
from torchbeast.training.bottleneck import Bottleneck
from torchbeast.training.setup import Setup

log = logging.getLogger("torchbeast")

REPORT_INTERVAL_S = 5.0
GRADIENT_INTERVAL = 20  # Learner steps.
# How long threads get to finish what they are at when a run ends.
JOIN_TIMEOUT_S = 3.0


class TrainingRun:
    """Agent, learner, published weights, records and checkpoints of one run.

    A context manager: inside it a signal ends :meth:`watch` instead of the program.
    """

    def __init__(
        self,
        flags: argparse.Namespace,
        setup: Setup,
        signals: StopSignals,
        make_weights: Callable[[Any], Any],
        queue_size: int,
    ) -> None:
        """``make_weights``: from an agent what is to :meth:`publish` it to those who act.

        ``queue_size``: rollouts that wait for a slow learner at most.
        """
        self._flags = flags
        self._setup = setup
        self._signals = signals
        self.threads = Threads()
        keep_freed_pages()
        torch.set_num_threads(setup.plan.torch_threads)
        names = [short_name(game) for game in setup.games]
        self._model_path = checkpoint.model_path(flags.savedir, setup.xpid)
        self._agent_config = AgentConfig(
            agent_type=flags.agent_type,
            observation_shape=setup.spec.observation_shape,
            num_actions=setup.spec.num_actions,
            tasks=setup.games,
            use_lstm=flags.use_lstm,
            use_popart=flags.use_popart,
            beta=flags.beta,
            beta_per=flags.beta_per,
        )
        find_agent_type(flags.agent_type)
        # Before anything is written: a run that cannot go on is left as it is.
        previous = self._load_previous()
        if previous is not None and flags.seed is None and "seed" in previous:
            self._setup = setup = setup._replace(seed=previous["seed"])
        torch.manual_seed(setup.seed)
        changes = self._changes() if previous is not None else []
        self._writer = FileWriter(
            flags.savedir,
            setup.xpid,
            self._meta(),
            log_fields(names, flags.use_popart),
            last_step=previous["steps"] if previous is not None else None,
        )
        self.path = self._writer.path
        self.learner = Learner(
            self._make_agent(is_new=previous is None),
            LossConfig(
                discounting=flags.discounting,
                baseline_cost=flags.baseline_cost,
                entropy_cost=flags.entropy_cost,
                clip_rewards=setup.clip_rewards,
            ),
            OptimizerConfig(**{name: getattr(flags, name) for name in OptimizerConfig._fields}),
            flags.batch_size,
            self._on_step,
            self._on_gradients if flags.track_gradients else lambda: None,
        )
        # What the threads that call the learner hand it at a time.
        self.rollouts_at_once = rollouts_at_once(
            flags.batch_size,
            flags.unroll_length,
            setup.plan.learner_threads,
            self.learner.agent.rows_at_once if setup.devices.learner.type == "cpu" else None,
        )
        self._progress = Progress(self._writer, names, flags.total_steps)
        if previous is not None:
            self.learner.load_state_dict(previous)
            self._progress.load_state_dict(previous.get("progress", {}), self.learner.steps)
            if "random_state" in previous:
                torch.set_rng_state(previous["random_state"])
            log.info("Going on at step %s of %s", f"{self.learner.steps:,}", self._model_path)
            for change in changes:
                log.info("Changed since then: %s", change)
        self._bottleneck = Bottleneck(
            queue_size=queue_size,
            num_actors=setup.num_actors,
            learner_threads=setup.plan.learner_threads,
            cores=flags.cores or available_cores(),
            agent_type=flags.agent_type,
            cuda=setup.devices.learner.type == "cuda",
        )
        self.weights = make_weights(self.learner.agent)
        self.weights.publish(self.learner.agent, self.learner.learner_steps)

    def __enter__(self) -> TrainingRun:
        self._signals.notify = self.threads.changed.set
        log.info("Run %s in %s", self._setup.xpid, self.path)
        log.info("%d actors, %s, %s", self._setup.num_actors, self._setup.plan, self._setup.devices)
        log.info("Curves: tensorboard --logdir %s", self.path.parent)
        for game in map(short_name, self._setup.games):
            expected = EXPECTATIONS.get((self._flags.preset, game))
            if expected:
                log.info("What to expect of %s: %s", game, expected)
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.notify = None
        self._writer.close()

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
        trace = StepTrace(self.path / "trace.json") if self._flags.write_profiler_trace else None
        next_save = time.monotonic() + self._flags.checkpoint_interval_s
        next_report = time.monotonic() + 1.0  # The first sign of life comes soon.
        try:
            while not self._is_over():
                self.threads.changed.wait(timeout=0.5)
                self.threads.changed.clear()
                check()
                self._bottleneck.look(queues())
                if trace is not None and trace.update(self.learner.learner_steps):
                    log.info("Trace in %s", self.path / "trace.json")
                if time.monotonic() >= next_report:
                    self._report(queues())
                    started = self.learner.learner_steps > 0
                    next_report = time.monotonic() + (REPORT_INTERVAL_S if started else 1.0)
                if time.monotonic() >= next_save:
                    self._save()
                    next_save = time.monotonic() + self._flags.checkpoint_interval_s
        finally:
            last_queues = queues()
            self.learner.close()
            stop()
            self.threads.join(JOIN_TIMEOUT_S)
            saved = self._save()
            if trace is not None:
                trace.close()
            self._report(last_queues)
            summary = self._progress.finish()
        signum = self._signals.received
        if self.threads.error is not None and signum is None:
            raise self.threads.error
        for line in summary:
            print(line)
        print(f"{self.learner.steps:,} steps; run in {self.path}", flush=True)
        if not saved:
            raise RunError("the last steps are not saved")
        return 0 if signum is None else 128 + signum

    def _is_over(self) -> bool:
        return bool(
            self._signals.received is not None
            or self.threads.error is not None
            or self.learner.steps >= self._flags.total_steps
        )

    def _make_agent(self, is_new: bool) -> Any:
        """The agent; if ``is_new`` with weights and statistics to begin with."""
        agent = make_agent(self._agent_config)
        if is_new:
            begin(agent, self._flags, self._setup)
        device = self._setup.devices.learner
        agent.compute_dtype = choose_dtype(self._flags.precision, device)
        return agent.to(device)

    def _meta(self) -> dict[str, Any]:
        setup = self._setup
        return {
            "args": vars(self._flags),
            "xpid": setup.xpid,
            "seed": setup.seed,
            "tasks": setup.games,
            "num_actions": setup.spec.num_actions,
            "reward_clipping": "abs_one" if setup.clip_rewards else "none",
            "threads": setup.plan._asdict(),
        }

    def _on_step(self, stats: StepStats) -> None:
        self.weights.publish(self.learner.agent, stats.learner_steps)
        self._progress.record(stats)
        every = self._flags.save_model_every_nsteps
        before = stats.steps - sum(stats.task_steps)
        if every and stats.steps // every > before // every:
            contents = self._agent_contents()
            del contents["optimizer_state_dict"]
            self._try_save(checkpoint.intermediate_path(self.path, contents["steps"]), contents)

    def _on_gradients(self) -> None:
        if self.learner.learner_steps % GRADIENT_INTERVAL == 0:
            self._writer.gradients(describe_gradients(self.learner.agent), step=self.learner.steps)

    @property
    def server_seed(self) -> int:
        """A resumed run goes on with other games than those it began with."""
        return (self._setup.seed + self.learner.steps) % 2**31

    def _agent_contents(self) -> dict[str, Any]:
        return {**self.learner.state_dict(), **self._setup.shown._asdict()}

    def _save(self) -> bool:
        """Whether all is well: saved, or nothing to save."""
        if self._flags.disable_checkpoint or self.learner.learner_steps == 0:
            return True
        contents = {
            **self._agent_contents(),
            "progress": self._progress.state_dict(),
            "seed": self._setup.seed,
            "random_state": torch.get_rng_state(),
        }
        return self._try_save(self._model_path, contents)

    def _try_save(self, path: Path, contents: dict[str, Any]) -> bool:
        """Training goes on without a checkpoint rather than not at all."""
        try:
            checkpoint.save(path, contents)
        except OSError as error:
            log.error("Cannot save %s (an earlier one stays as it is): %s", path, error)
            return False
        return True

    def _load_previous(self) -> dict[str, Any] | None:
        """The checkpoint to go on from, if there is one. UsageError if it is of another agent."""
        if self._flags.disable_checkpoint or not self._model_path.exists():
            return None
        contents = checkpoint.load(self._model_path)
        # What an earlier version did not save has its default.
        saved = {**AgentConfig()._asdict(), **contents.get("agent", {})}
        changed = [
            name
            for name, value in self._agent_config._asdict().items()
            if name not in ("beta", "beta_per") and saved[name] != value
        ]
        if changed:
            raise UsageError(
                f"{self._model_path} is of another agent: {', '.join(changed)} changed; "
                "choose another --xpid"
            )
        return contents

    def _changes(self) -> list[str]:
        """Flags that differ from those the run had before."""
        before = checkpoint.read_meta(self._model_path).get("args", {})
        here = {"mode", "savedir", "xpid"}
        return [
            f"--{name} {before[name]} -> {value}"
            for name, value in vars(self._flags).items()
            if name in before and before[name] != value and name not in here
        ]

    def _report(self, queues: dict[str, int]) -> None:
        popart = self.learner.agent.baseline if self._flags.use_popart else None
        self._progress.report(queues, self._bottleneck.find(), popart)
