"""Hands scalars to loggers, each on a separate thread."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torchbeast.core.types import UsageError
from torchbeast.records.loggers.protocol import Logger, RunInfo
from torchbeast.runtime.text import first_line

log = logging.getLogger("torchbeast")

# Sets of scalars that may wait for a logger. With more it is too slow for the run.
MAX_WAITING = 10_000
# How long all loggers together may take to write what is left when a run ends.
CLOSE_TIMEOUT_S = 10.0
# In a run's directory: what loggers need to resume.
IDS_FILE = "loggers.json"


class Scalars(NamedTuple):
    """Values of one moment."""

    values: Mapping[str, float]
    step: int


class Loggers:
    """Several loggers as one. Thread-safe.

    A logger that fails is reported once and left out. Training continues.
    """

    def __init__(self, loggers: Mapping[str, Logger], run: RunInfo) -> None:
        """Opens the loggers.

        Args:
            loggers: by name.
            run: the run. ``resume_id`` is filled in from the run's directory.

        Raises:
            UsageError: a logger cannot be opened.
        """
        path = run.directory / IDS_FILE
        known = _read_ids(path) if run.last_step is not None else {}
        ids = dict(known)
        self._workers: list[_Worker] = []
        for name, logger in loggers.items():
            try:
                resume_id = logger.open(run._replace(resume_id=known.get(name)))
            except Exception as error:
                self.close()
                raise UsageError(f"--logger {name} cannot start: {first_line(error)}") from error
            if resume_id is not None:
                ids[name] = str(resume_id)
            self._workers.append(_Worker(name, logger))
        if ids or path.exists():
            path.write_text(json.dumps(ids) + "\n")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Hands ``values`` at agent step ``step`` to every logger. Returns at once."""
        for worker in self._workers:
            worker.put(Scalars(values, step))

    def close(self) -> None:
        """Lets the loggers write what is left, for a limited time."""
        for worker in self._workers:
            worker.put(None)
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for worker in self._workers:
            worker.join(deadline)
        self._workers = []


class _Worker:
    """The thread of one logger."""

    def __init__(self, name: str, logger: Logger) -> None:
        self._name = name
        self._logger = logger
        self._waiting: queue.Queue[Scalars | None] = queue.Queue(MAX_WAITING)
        self._is_out = threading.Event()
        # A daemon: a logger that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name=f"logger-{name}", daemon=True)
        self._thread.start()

    def put(self, item: Scalars | None) -> None:
        """Queues values, or None for the end."""
        if self._is_out.is_set():
            return
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            self._leave_out(f"more than {MAX_WAITING:,} sets of values wait for it")

    def join(self, deadline: float) -> None:
        """Waits for the end until ``deadline``, a time of the monotonic clock."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() and not self._is_out.is_set():
            self._leave_out(f"it did not finish within {CLOSE_TIMEOUT_S:.0f} s")

    def _run(self) -> None:
        try:
            while (item := self._waiting.get()) is not None and not self._is_out.is_set():
                self._logger.scalars(item.values, item.step)
        except Exception as error:
            self._leave_out(first_line(error))
        try:  # One that was left out, too: a service should hear that the run has ended for it.
            self._logger.close()
        except Exception as error:
            self._leave_out(first_line(error))

    def _leave_out(self, reason: str) -> None:
        if not self._is_out.is_set():
            self._is_out.set()
            log.error("Logger %s failed and is left out: %s", self._name, reason)


def _read_ids(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}
