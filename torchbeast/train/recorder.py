"""What a run records while it trains."""

from __future__ import annotations

import logging
import time
from typing import Any

from torchbeast.core.learner import Learner
from torchbeast.core.stats import StepStats
from torchbeast.envs.games import short_name
from torchbeast.envs.human_scores import human_normalized
from torchbeast.records.display import make_display
from torchbeast.records.file_writer import FileWriter
from torchbeast.records.metrics import episode_scalars, log_fields, log_row, snapshot_scalars
from torchbeast.records.profiling import StepTrace, describe_gradients
from torchbeast.records.progress import Progress, Snapshot
from torchbeast.records.scores import POLICIES, SCORE_FIELDS, Evaluation, GameScore, normalize
from torchbeast.train.bottleneck import BottleneckDetector
from torchbeast.train.plan import RunPlan
from torchbeast.train.start import RunState

log = logging.getLogger("torchbeast")

# Seconds between two rows of logs.csv, and two points of TensorBoard's curves.
REPORT_INTERVAL_S = 5.0
# Seconds between two looks at the run, which refresh the display.
LOOK_INTERVAL_S = 1.0
# Learner steps between two rows of gradients.csv.
GRADIENT_INTERVAL = 20
# The first skipped updates are all announced, later ones in intervals.
FIRST_SKIPPED, SKIPPED_INTERVAL = 20, 1000


class Recorder:
    """Writes the files of a run except its checkpoints, and shows its progress.

    The learner's threads call ``record_step`` and ``record_gradients``, one other thread the rest.
    """

    def __init__(self, plan: RunPlan, state: RunState) -> None:
        """Creates or resumes the run's directory.

        Args:
            state: what the run starts from. Records behind its step are dropped.

        Raises:
            UsageError: the directory cannot be written to, or Weights & Biases cannot start.
        """
        config = plan.config
        names = [short_name(game) for game in config.games]
        self._writer = FileWriter(
            config.output.savedir,
            plan.xpid,
            _describe_run(plan, state),
            log_fields(names, config.network.use_popart),
            last_step=state.steps,
            use_wandb=config.output.logger == "wandb",
            is_over=(state.steps or 0) >= config.optimizer.total_steps,
        )
        self.path = self._writer.path
        self.evaluated_step = self._writer.evaluated_step
        """The step of the last scores of a resumed run; 0 if there are none."""
        self.progress = Progress(
            names,
            config.optimizer.total_steps,
            lambda task, value: human_normalized(config.games[task], value),
        )
        if state.checkpoint is not None:
            self.progress.load_state_dict(
                state.checkpoint.get("progress", {}), state.checkpoint["task_steps"]
            )
        self._games = config.games
        self._names = names
        self._display = make_display()
        self._logged_step = state.steps or 0
        self._detector = BottleneckDetector(config.learner_queue_size, plan.num_actors)
        trace_path = self.path / "trace.json"
        self._trace = StepTrace(trace_path) if config.output.write_profiler_trace else None
        self._has_popart = config.network.use_popart
        self._next_look = time.monotonic() + LOOK_INTERVAL_S
        self._next_report = self._next_look

    def record_step(self, stats: StepStats) -> None:
        """Takes in the statistics of a learner step."""
        self.progress.record(stats)
        if stats.fault is not None:
            _warn_of_skipped(stats)

    def record_gradients(self, learner: Learner) -> None:
        """Writes statistics of the gradients, every ``GRADIENT_INTERVAL`` learner steps."""
        if learner.learner_steps % GRADIENT_INTERVAL == 0:
            self._writer.gradients(describe_gradients(learner.agent), step=learner.steps)

    def record_evaluation(self, evaluation: Evaluation, seconds: float) -> None:
        """Writes the scores of an evaluation, and has the progress display show it.

        Args:
            seconds: how long the agent was trained.
        """
        run = {"step": evaluation.step, "seconds": f"{seconds:.1f}"}
        rows = ({**run, "game": short_name(s.env), **s._asdict()} for s in evaluation.scores)
        self._writer.scores({name: row[name] for name in SCORE_FIELDS} for row in rows)
        for score in evaluation.scores:
            self._writer.scalars(_score_scalars(score), evaluation.step)
        medians: dict[str, float] = {}
        for policy in POLICIES:
            normalized = normalize(evaluation.select(policy))
            if normalized is not None:
                medians[policy] = normalized.median
                scalars = {
                    f"eval/{policy}/human_normalized_median": normalized.median,
                    f"eval/{policy}/human_normalized_mean": normalized.mean,
                }
                self._writer.scalars(scalars, evaluation.step)
        means = {score.env: score.mean for score in evaluation.select(POLICIES[0])}
        returns = tuple(means.get(game) for game in self._games)
        self.progress.record_evaluation(evaluation.step, returns, medians.get(POLICIES[0]))

    def update(self, queues: dict[str, int], learner: Learner) -> None:
        """Reports if it is time. To be called twice a second; ``queues`` has their sizes."""
        self._detector.look(queues)
        if self._trace is not None and self._trace.update(learner.learner_steps):
            log.info("Trace in %s", self.path / "trace.json")
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_INTERVAL_S
        snapshot = self._take_snapshot(queues, learner)
        if now >= self._next_report:
            self._report(snapshot)
            # Until the first learner step there is nothing to write: look again soon.
            if snapshot.last is not None:
                self._next_report = now + REPORT_INTERVAL_S
        else:
            self._display.show(snapshot, is_report=False)

    def finish(self, queues: dict[str, int], learner: Learner) -> None:
        """Writes the last records and ends the display."""
        if self._trace is not None:
            self._trace.close()
        self._report(self._take_snapshot(queues, learner))
        self._display.close()

    def record_error(self, error: BaseException) -> None:
        """Writes what ended the run to out.log."""
        self._writer.error(error)

    def close(self) -> None:
        """Closes the files, the scalars and the display."""
        self._display.close()
        self._writer.close()

    def _take_snapshot(self, queues: dict[str, int], learner: Learner) -> Snapshot:
        popart = None
        if self._has_popart:
            layer = learner.agent.baseline
            with learner.without_update():
                popart = list(zip(layer.mu.tolist(), layer.sigma.tolist(), strict=True))
        return self.progress.snapshot(queues, self._detector.find(), popart)

    def _report(self, snapshot: Snapshot) -> None:
        """Shows a snapshot, and writes it unless its step was written before."""
        self._display.show(snapshot)
        if snapshot.last is None or snapshot.steps == self._logged_step:
            return
        self._logged_step = snapshot.steps
        self._writer.log(log_row(snapshot))
        ended = episode_scalars(self.progress.take_ended(), self._names)
        self._writer.scalars({**snapshot_scalars(snapshot), **ended}, snapshot.steps)


def _score_scalars(score: GameScore) -> dict[str, float]:
    name = short_name(score.env)
    scalars = {f"eval/{score.policy}/episodic_return/{name}": score.mean}
    if score.human_normalized is not None:
        scalars[f"eval/{score.policy}/human_normalized/{name}"] = score.human_normalized
    return scalars


def _warn_of_skipped(stats: StepStats) -> None:
    count = stats.skipped_updates
    if count <= FIRST_SKIPPED or count % SKIPPED_INTERVAL == 0:
        log.warning(
            "Step %s: an update that is not finite is skipped, number %s in this run (%s)",
            f"{stats.steps:,}",
            f"{count:,}",
            stats.fault,
        )


def _describe_run(plan: RunPlan, state: RunState) -> dict[str, Any]:
    """The contents of meta.json, as far as they are the run's own."""
    config = plan.config
    return {
        "args": config.args,
        "xpid": plan.xpid,
        "seed": state.seed,
        "tasks": config.games,
        "num_actions": plan.agent.num_actions,
        "reward_clipping": config.learning.loss.reward_clipping,
        "threads": plan.threads._asdict(),
    }
