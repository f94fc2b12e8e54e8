"""Weights & Biases, with ``--logger wandb``. Its environment variables apply (WANDB_PROJECT)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import wandb

from torchbeast.records.loggers.protocol import RunInfo

PROJECT = "torchbeast"
STEP = "agent_steps"


class WandbLogger:
    """Logs to a run of Weights & Biases. Offline with ``WANDB_MODE=offline``."""

    def open(self, run: RunInfo) -> str:
        """Starts a run there or resumes it; returns its id."""
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            id=run.resume_id,
            resume=None if run.resume_id is None else "allow",
            config=dict(run.config),
            dir=str(run.directory),
            # The block of the terminal would fill its log; out.log has all messages.
            settings=wandb.Settings(console="off"),
        )
        # A resumed run goes back to its checkpoint: the steps of wandb itself must not.
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)
        return str(self._run.id)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Logs the values over agent steps."""
        self._run.log({**values, STEP: step})

    def close(self) -> None:
        """Ends the run there."""
        self._run.finish()
