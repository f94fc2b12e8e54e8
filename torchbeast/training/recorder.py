"""What a run records while it trains."""

from __future__ import annotations

import logging
import time
from typing import Any

from torchbeast.core.learner import Learner, StepStats
from torchbeast.envs.games import short_name
from torchbeast.records.file_writer import FileWriter
from torchbeast.records.gradients import describe_gradients
from torchbeast.records.prof import StepTrace
from torchbeast.records.progress import Progress, log_fields
from torchbeast.records.scores import POLICIES, SCORE_FIELDS, Evaluation, GameScore
from torchbeast.training.bottleneck import Bottleneck
from torchbeast.training.setup import Setup
from torchbeast.training.state import RunState

log = logging.getLogger("torchbeast")

# Seconds between two rows of logs.csv.
REPORT_INTERVAL_S = 5.0
# Until the first learner step, the progress line comes sooner.
FIRST_REPORT_INTERVAL_S = 1.0
# Learner steps between two rows of gradients.csv.
GRADIENT_INTERVAL = 20


class Recorder:
    """Writes the files of a run except its checkpoints, and shows its progress.

    The learner's threads call ``record_step`` and ``record_gradients``, one other thread the rest.
    """

    def __init__(self, setup: Setup, state: RunState, queue_size: int) -> None:
        """Creates or resumes the run's directory.

        Args:
            setup: the run.
            state: what the run starts from. Records behind its step are dropped.
            queue_size: rollouts that wait for the learner at most.

        Raises:
            UsageError: the directory cannot be written to.
        """
        config = setup.config
        names = [short_name(game) for game in config.games]
        self._writer = FileWriter(
            config.output.savedir,
            setup.xpid,
            _describe_run(setup, state),
            log_fields(names, config.network.use_popart),
            last_step=state.steps,
        )
        self.path = self._writer.path
        self.progress = Progress(self._writer, names, config.optimizer.total_steps)
        if state.checkpoint is not None:
            steps = state.checkpoint["steps"]
            self.progress.load_state_dict(state.checkpoint.get("progress", {}), steps)
        self._bottleneck = Bottleneck(
            queue_size=queue_size,
            num_actors=setup.num_actors,
            learner_threads=setup.plan.learner_threads,
            cores=setup.cores,
            agent_type=config.network.agent_type,
            cuda=setup.devices.learner.type == "cuda",
        )
        trace_path = self.path / "trace.json"
        self._trace = StepTrace(trace_path) if config.output.write_profiler_trace else None
        self._has_popart = config.network.use_popart
        self._next_report = time.monotonic() + FIRST_REPORT_INTERVAL_S

    def record_step(self, stats: StepStats) -> None:
        """Takes in the statistics of a learner step."""
        self.progress.record(stats)

    def record_gradients(self, learner: Learner) -> None:
        """Writes statistics of the gradients, every ``GRADIENT_INTERVAL`` learner steps."""
        if learner.learner_steps % GRADIENT_INTERVAL == 0:
            self._writer.gradients(describe_gradients(learner.agent), step=learner.steps)

    def seconds(self) -> float:
        """Returns how long the run has trained, in seconds."""
        seconds: float = self.progress.state_dict()["seconds"]
        return seconds

    def record_score(self, step: int, seconds: float, score: GameScore) -> None:
        """Writes the score of one game under one policy.

        Args:
            step: agent steps that the evaluated agent was trained for.
            seconds: how long it was trained.
            score: the score.
        """
        name = short_name(score.env)
        values = {"step": step, "seconds": f"{seconds:.1f}", "game": name, **score._asdict()}
        self._writer.score({field: values[field] for field in SCORE_FIELDS})
        scalars = {f"eval/{score.policy}/episodic_return/{name}": score.mean}
        if score.human_normalized is not None:
            scalars[f"eval/{score.policy}/human_normalized/{name}"] = score.human_normalized
        self._writer.scalars(scalars, step)

    def record_evaluation(self, evaluation: Evaluation) -> None:
        """Writes an evaluation's human-normalised scores, and has the progress display show it."""
        for policy in POLICIES:
            normalized = evaluation.normalized(policy)
            if normalized is not None:
                scalars = {
                    f"eval/{policy}/human_normalized_median": normalized.median,
                    f"eval/{policy}/human_normalized_mean": normalized.mean,
                }
                self._writer.scalars(scalars, evaluation.step)
        self.progress.record_evaluation(evaluation)

    def update(self, queues: dict[str, int], learner: Learner) -> None:
        """Takes in the sizes of the queues; reports if it is time. To be called twice a second."""
        self._bottleneck.look(queues)
        if self._trace is not None and self._trace.update(learner.learner_steps):
            log.info("Trace in %s", self.path / "trace.json")
        if time.monotonic() >= self._next_report:
            self._report(queues, learner)
            started = learner.learner_steps > 0
            interval = REPORT_INTERVAL_S if started else FIRST_REPORT_INTERVAL_S
            self._next_report = time.monotonic() + interval

    def finish(self, queues: dict[str, int], learner: Learner) -> list[str]:
        """Writes the last records; returns a line per game with its mean return."""
        if self._trace is not None:
            self._trace.close()
        self._report(queues, learner)
        return self.progress.finish()

    def close(self) -> None:
        """Closes the files."""
        self._writer.close()

    def _report(self, queues: dict[str, int], learner: Learner) -> None:
        popart = learner.agent.baseline if self._has_popart else None
        self.progress.report(queues, self._bottleneck.find(), popart)


def _describe_run(setup: Setup, state: RunState) -> dict[str, Any]:
    """The contents of meta.json, as far as they are the run's own."""
    config = setup.config
    return {
        "args": config.args,
        "xpid": setup.xpid,
        "seed": state.seed,
        "tasks": config.games,
        "num_actions": setup.agent.num_actions,
        "reward_clipping": config.learning.reward_clipping,
        "threads": setup.plan._asdict(),
    }
