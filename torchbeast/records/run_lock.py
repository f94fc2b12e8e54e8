"""One process at a time writes to a run's directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from torchbeast.core.types import UsageError
from torchbeast.records.checkpoint import run_path
from torchbeast.records.file_writer import check_writable


@contextlib.contextmanager
def lock_run(savedir: str, xpid: str) -> Iterator[None]:
    """Keeps other processes from the directory of a run, which is made where it is missing.

    The kernel releases the lock when the process ends, however it ends. A directory in which
    nothing was written is removed.

    Raises:
        UsageError: another process writes this run, or it cannot be written.
    """
    check_writable(savedir, xpid)
    path = run_path(savedir, xpid).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"Cannot write to --savedir {savedir}: {error}") from error
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another process writes {path}: wait until it ends, or choose another --xpid"
            ) from None
        except OSError:
            pass  # A file system without locks.
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.rmdir()
    finally:
        os.close(directory)
