"""Priority of processes, also where Linux divides time among sessions first (autogroups).

There niceness counts among the processes of one session only, and a process that begins a session
leaves the priority of its parent's session behind.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

NICEST = 19
# An unprivileged process may change the niceness of sessions once in this time.
CHANGE_INTERVAL_S = 0.15


def session_niceness(pid: int) -> int:
    """Returns the niceness of a process's session; 0 where sessions have none."""
    try:
        return int(Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2])
    except (OSError, ValueError):
        return 0


def lower_session(pid: int, niceness: int) -> None:
    """Sets the niceness of a process's session, where sessions have one and it may be set."""
    for _ in range(3):
        with contextlib.suppress(OSError):
            try:
                Path(f"/proc/{pid}/autogroup").write_text(str(min(niceness, NICEST)))
            except BlockingIOError:
                time.sleep(CHANGE_INTERVAL_S)
                continue
        return


def follow_parent() -> None:
    """Gives the session of this process, if it began one, the priority of its parent's."""
    if os.getsid(0) != os.getpid():
        return
    niceness = session_niceness(os.getppid())
    if niceness != session_niceness(os.getpid()):
        lower_session(os.getpid(), niceness)


def lower(niceness: int) -> None:
    """Lowers the priority of this process, which began a session, by ``niceness``."""
    with contextlib.suppress(OSError):
        os.nice(niceness)
    lower_session(os.getpid(), session_niceness(os.getpid()) + niceness)
