"""The lock of the directory of all runs. Each run locks its own directory likewise."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tools.shipped.plan import ROOT
from torchbeast.core.types import UsageError
from torchbeast.records.run_lock import lock_directory

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
    deadline = time.monotonic() + TIMEOUT_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock_directory(directory))
                break
            except BlockingIOError:
                # --status holds the lock for a moment.
                if time.monotonic() > deadline:
                    raise UsageError(f"Another process trains the agents in {directory}") from None
                time.sleep(POLL_S)
            except OSError as error:
                raise UsageError(f"--directory {directory}: {error.strerror}") from error
        yield
