"""Locks of directories, which the kernel releases when their process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.01


@contextlib.contextmanager
def lock_directory(
    path: Path, *, timeout_s: float = 0.0, is_shared: bool = False
) -> Iterator[None]:
    """Keeps other processes from a directory. On a file system without locks it does nothing.

    Args:
        path: the directory.
        timeout_s: how long to wait for a process that has the lock.
        is_shared: whether others may have the lock, too, if they share it.

    Raises:
        BlockingIOError: another process has the lock.
        OSError: the directory cannot be opened.
    """
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    deadline = time.monotonic() + timeout_s
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
            except OSError:
                break  # A file system without locks.
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Returns whether another process has the lock of a directory; not if it cannot be opened."""
    try:
        with lock_directory(path, is_shared=True):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
