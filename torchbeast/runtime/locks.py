"""Locks of directories, which the kernel releases when their process ends, however it ends.

The C++ server locks directories of sockets in the same way (``csrc/wire/socket_path.cc``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Keeps other processes from a directory. On a file system without locks it does nothing.

    Raises:
        BlockingIOError: another process has the lock.
        OSError: the directory cannot be opened.
    """
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
