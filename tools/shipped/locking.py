"""The lock of the directory of all runs. Each run locks its own directory likewise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tools.shipped.plan import ROOT
from torchbeast.core.types import UsageError
from torchbeast.runtime.locks import lock_directory

# --status holds the lock for a moment.
TIMEOUT_S = 1.0


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Keeps other trainers from a directory, which is made where it is missing.

    Raises:
        UsageError: another process trains there, or the directory cannot be used.
    """
    if directory.resolve().is_relative_to(ROOT):
        raise UsageError(f"--directory {directory} is inside the work tree; choose one outside")
    with contextlib.ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock_directory(directory, timeout_s=TIMEOUT_S))
        except BlockingIOError:
            raise UsageError(f"Another process trains the agents in {directory}") from None
        except OSError as error:
            raise UsageError(f"--directory {directory}: {error.strerror}") from error
        yield
