"""The lock of the directory of all runs. Each run locks its own directory likewise."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tools.shipped.plan import ROOT
from torchbeast.core.types import UsageError

TIMEOUT_S = 1.0
POLL_S = 0.2


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Keeps other trainers from a directory, which is made where it is missing.

    Raises:
        UsageError: another process trains there, or the directory cannot be used.
    """
    if directory.resolve().is_relative_to(ROOT):
        raise UsageError(f"--directory {directory} is inside the work tree; choose one outside")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"--directory {directory}: {error.strerror}") from error
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # --status holds the lock for a moment.
                if time.monotonic() > deadline:
                    raise UsageError(f"Another process trains the agents in {directory}") from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


def is_locked(directory: Path) -> bool:
    """Whether a trainer is at work in a directory."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
