"""When a run is saved, and what is saved of it."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from torchbeast.core.learner import Learner, find_not_finite
from torchbeast.core.stats import StepStats
from torchbeast.records import checkpoint, run_files
from torchbeast.records.progress import Progress
from torchbeast.train.plan import RunPlan

log = logging.getLogger("torchbeast")


def passed_multiple(stats: StepStats, interval: int) -> bool:
    """Returns whether a learner step reached or passed a multiple of ``interval`` agent steps.

    Never for interval 0.
    """
    before = stats.steps - sum(stats.task_steps)
    return interval > 0 and stats.steps // interval > before // interval


def name_tensors(contents: dict[str, Any]) -> dict[str, Any]:
    """Returns the weights in a checkpoint and the optimizer's averages, by name."""
    averages = contents.get("optimizer_state_dict", {}).get("state", {})
    return contents["model_state_dict"] | {
        f"{name} of parameter {parameter}": average
        for parameter, values in averages.items()
        for name, average in values.items()
    }


class Checkpointer:
    """Saves a run: ``model.tar`` to resume from, and copies of the agent.

    A checkpoint that cannot be written is reported and left out: training continues without it.
    """

    def __init__(
        self,
        directory: Path,
        plan: RunPlan,
        seed: int,
        learner: Learner,
        progress: Progress,
    ) -> None:
        """Prepares to save a run.

        Args:
            learner: its state is saved. It is new, or in the state of the checkpoint that is there.
            progress: its counts are saved.
        """
        self._directory = directory
        self._config = plan.config.output
        self._observation = plan.config.observation
        self._seed = seed
        self._learner = learner
        self._progress = progress
        self._next_save = time.monotonic() + self._config.checkpoint_interval_s
        self.saved_step: int | None = learner.steps or None
        """Agent steps of ``model.tar``, as it was loaded or last written; None without one."""

    @property
    def path(self) -> Path:
        """The checkpoint that a run is resumed from."""
        return run_files.model_path(self._directory)

    def save_if_due(self) -> None:
        """Saves the run every ``checkpoint_interval_s`` seconds."""
        if time.monotonic() >= self._next_save:
            self.save()
            self._next_save = time.monotonic() + self._config.checkpoint_interval_s

    def save(self) -> bool:
        """Saves the run, unless there is nothing to save yet or checkpoints are disabled.

        Weights that are not finite are never saved, nor those of a run that has diverged.

        Returns:
            False if the checkpoint could not be written.
        """
        if self._config.disable_checkpoint or self._learner.learner_steps == 0:
            return True
        if self._learner.is_diverged:
            return False
        if self._learner.steps == self.saved_step and self.path.exists():
            return True
        with self._learner.without_update():  # Weights and counts are of one moment.
            contents = {
                **self._learner.state_dict(),
                **self._observation._asdict(),
                "progress": self._progress.state_dict(),
                "seed": self._seed,
            }
        if not self._write(self.path, contents):
            return False
        self.saved_step = contents["steps"]
        return True

    def keep_copy_if_due(self, stats: StepStats) -> None:
        """Keeps a copy of the agent if the learner step passed a multiple of the interval.

        The learner calls this between two steps, while its weights do not change. The copy has no
        optimizer.
        """
        if passed_multiple(stats, self._config.save_model_every_nsteps):
            self.save_agent(run_files.model_path(self._directory, stats.steps))

    def save_agent(self, path: Path) -> bool:
        """Saves the agent, without optimizer.

        Returns:
            False if it could not be written.
        """
        contents = {**self._learner.agent_state(), **self._observation._asdict()}
        return self._write(path, contents)

    def _write(self, path: Path, contents: dict[str, Any]) -> bool:
        faulty = find_not_finite(name_tensors(contents))
        if faulty:
            log.error("Cannot save %s: %s is not finite", path, faulty[0])
            return False
        try:
            checkpoint.save(path, contents)
        except OSError as error:
            log.error("Cannot save %s (an earlier one stays as it is): %s", path, error)
            return False
        return True
