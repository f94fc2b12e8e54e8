"""Locks of directories: one process at a time writes to that of a run."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from torchbeast.core.types import UsageError
from torchbeast.records.checkpoint import run_path
from torchbeast.records.file_writer import check_writable


@contextlib.contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Keeps other processes from a directory, which is made where it is missing.

    The kernel releases the lock when the process ends, however it ends. A file system without locks
    has none.

    Raises:
        BlockingIOError: another process has the lock.
        OSError: the directory cannot be made or read.
    """
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # A file system without locks.
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Returns whether another process has the lock of a directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # A file system without locks.
    finally:
        os.close(descriptor)
    return False


def reserve_name(savedir: str, xpid: str) -> str:
    """Makes the directory of a new run.

    Args:
        savedir: the directory of all runs.
        xpid: what to call it.

    Returns:
        The name, with a number if another run has it, which may have started in the same second.

    Raises:
        UsageError: the directory cannot be made.
    """
    check_writable(savedir, xpid)
    try:
        run_path(savedir, xpid).parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            name = xpid if number == 1 else f"{xpid}-{number}"
            with contextlib.suppress(FileExistsError):
                run_path(savedir, name).mkdir()
                break
    except OSError as error:
        raise UsageError(f"Cannot write to --savedir {savedir}: {error}") from error
    return name


@contextlib.contextmanager
def lock_run(savedir: str, xpid: str) -> Iterator[None]:
    """Keeps other processes from the directory of a run, which is made where it is missing.

    A directory in which nothing was written is removed in the end.

    Raises:
        UsageError: another process writes this run, or it cannot be written.
    """
    check_writable(savedir, xpid)
    path = run_path(savedir, xpid).absolute()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_directory(path))
        except BlockingIOError:
            raise UsageError(
                f"Another process writes {path}: wait until it ends, or choose another --xpid"
            ) from None
        except OSError as error:
            raise UsageError(f"Cannot write to --savedir {savedir}: {error}") from error
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.rmdir()
