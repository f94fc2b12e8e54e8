"""Scalars of a run: TensorBoard's event files, and Weights & Biases, which reads them."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchbeast.core.types import UsageError
from torchbeast.runtime.text import first_line

log = logging.getLogger("torchbeast")

PROJECT = "torchbeast"
# Values that may wait for TensorBoard's thread. Training waits only if the disk is so far behind.
MAX_WAITING = 10_000


def check_logger(name: str | None) -> None:
    """Raises UsageError if the package that ``--logger`` needs is missing."""
    if name is not None:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UsageError(f"--logger {name} needs a package: pip install {name}") from error


class ScalarWriter:
    """Writes scalars as event files into a run's directory. Thread-safe.

    Scalars never end a run: a failure is said once, and later scalars are left out.
    """

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, Any],
        last_step: int | None,
        *,
        use_wandb: bool = False,
    ) -> None:
        """Opens a new event file.

        Args:
            directory: of the run, whose name is that of the run.
            config: all flags, and what follows from them; TensorBoard's Text tab shows them.
            last_step: agent steps of the checkpoint that is resumed. Events after it in earlier
                files are hidden, all of them for None.
            use_wandb: whether Weights & Biases gets all that TensorBoard gets.

        Raises:
            UsageError: Weights & Biases cannot start.
        """
        self._wandb: Any = None
        self._failed: set[str] = set()
        if use_wandb:
            self._wandb = _start_wandb(directory, config)
        from torch.utils.tensorboard import SummaryWriter  # wandb has patched it.

        self._writer = SummaryWriter(
            str(directory),
            purge_step=0 if last_step is None else last_step + 1,
            max_queue=MAX_WAITING,
        )
        self._writer.add_text("hyperparameters", _table(config), last_step or 0)

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Adds a point to each curve, at agent step ``step``."""
        if not self._failed:
            self._try("TensorBoard", lambda: self._add(values, step))

    def close(self) -> None:
        """Writes what is left and closes the file; ends the run at Weights & Biases."""
        self._try("TensorBoard", self._writer.close)
        if self._wandb is not None:
            self._try("Weights & Biases", self._wandb.finish)
            self._wandb = None

    def _add(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def _try(self, name: str, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            if name not in self._failed:
                self._failed.add(name)
                log.error("%s failed and is left out: %s", name, first_line(error))


def _start_wandb(directory: Path, config: Mapping[str, Any]) -> Any:
    """Starts a run there; returns the module. WANDB_PROJECT and WANDB_MODE apply."""
    import wandb

    try:
        wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=directory.name,
            group=directory.name,  # A resumed run is a new one there.
            config=dict(config),
            sync_tensorboard=True,
            dir=str(directory),
            # The block of the terminal would fill its log; out.log has all messages.
            settings=wandb.Settings(console="off"),
        )
    except Exception as error:
        raise UsageError(f"--logger wandb cannot start: {first_line(error)}") from error
    return wandb


def _table(config: Mapping[str, Any]) -> str:
    """The configuration as a table in Markdown."""
    rows = [f"| {name} | {value} |" for name, value in sorted(config.items())]
    return "\n".join(["| flag | value |", "| --- | --- |", *rows])
