"""The directory of a run has one name, and one process at a time writes to it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator

from torchbeast.core.types import UsageError
from torchbeast.records.run_files import refuse_unwritable, run_path


def reserve_name(savedir: str, xpid: str) -> str:
    """Makes the directory of a new run.

    Args:
        savedir: the directory of all runs.

    Returns:
        The name, with a number if another run has it, which may have started in the same second.

    Raises:
        UsageError: the directory cannot be made.
    """
    with refuse_unwritable(savedir):
        run_path(savedir, xpid).parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            name = xpid if number == 1 else f"{xpid}-{number}"
            with contextlib.suppress(FileExistsError):
                run_path(savedir, name).mkdir()
                break
    return name


@contextlib.contextmanager
def lock_run(savedir: str, xpid: str) -> Iterator[None]:
    """Keeps other processes from the directory of a run, which is made where it is missing.

    The kernel releases the lock when this process ends, however it ends. On a file system without
    locks there is none.

    A directory in which nothing was written is removed in the end, unless a signal ends the
    process.

    Raises:
        UsageError: another process writes this run, or it cannot be written.
    """
    path = run_path(savedir, xpid).absolute()
    lock_path = path / ".lock"
    with refuse_unwritable(savedir):
        path.mkdir(parents=True, exist_ok=True)
        # Not the directory: NFS locks it for one machine alone, and a file only if it is writable.
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink == 0:  # The process that had it has just removed it.
                raise BlockingIOError
        except BlockingIOError:
            raise UsageError(
                f"Another process writes {path}: wait until it ends, or choose another --xpid"
            ) from None
        except OSError:
            pass  # A file system without locks.
        try:
            with refuse_unwritable(savedir):
                os.write(descriptor, b"\n")  # Fails on a full disk; nobody reads it.
            yield
        finally:
            with contextlib.suppress(OSError):  # It has other files.
                lock_path.unlink()
                path.rmdir()
    finally:
        os.close(descriptor)
