"""TensorBoard's event files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchbeast.records.loggers.protocol import RunInfo


class TensorBoardLogger:
    """Writes event files into the run's directory. Its Text tab shows the flags."""

    def open(self, run: RunInfo) -> None:
        """Opens a new event file.

        Events after ``run.last_step`` in earlier files are hidden; all of them for a new run.
        """
        from torch.utils.tensorboard import SummaryWriter

        purge_step = 0 if run.last_step is None else run.last_step + 1
        self._writer = SummaryWriter(str(run.directory), purge_step=purge_step)
        self._writer.add_text("hyperparameters", _table(run.config), run.last_step or 0)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds a point to each curve."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes the remaining events and closes the file."""
        self._writer.close()


def _table(config: Mapping[str, Any]) -> str:
    """The configuration as a table in Markdown."""
    rows = [f"| {name} | {value} |" for name, value in sorted(config.items())]
    return "\n".join(["| flag | value |", "| --- | --- |", *rows])
