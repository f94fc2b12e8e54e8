"""Locks of directories, which the kernel releases when their process ends, however it ends.

The C++ server locks directories of sockets in the same way (``csrc/wire/socket_path.cc``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.01


@contextlib.contextmanager
def lock_directory(path: Path, *, timeout_s: float = 0.0) -> Iterator[None]:
    """Keeps other processes from a directory. On a file system without locks it does nothing.

    Args:
        path: the directory.
        timeout_s: how long to wait for a process that has the lock.

    Raises:
        BlockingIOError: another process has the lock.
        OSError: the directory cannot be opened.
    """
    deadline = time.monotonic() + timeout_s
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
