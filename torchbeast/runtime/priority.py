"""Priority of processes, also where Linux divides time among sessions first (autogroups).

There niceness counts among the processes of one session only, and a process that begins a session
does not inherit the priority of its parent's session.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

NICEST = 19
# Unprivileged processes may change the niceness of one session in 0.1 s, all of them together.
MAX_ATTEMPTS = 20
PAUSE_S = (0.1, 0.3)


def session_niceness(pid: int) -> int:
    """Returns the niceness of a process's session; 0 where sessions have none."""
    try:
        return int(Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2])
    except (OSError, ValueError):
        return 0


def set_session_niceness(pid: int, niceness: int) -> None:
    """Sets the niceness of a process's session, where sessions have one and it may be set."""
    for _ in range(MAX_ATTEMPTS):
        with contextlib.suppress(OSError):
            try:
                Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
            except BlockingIOError:
                time.sleep(random.uniform(*PAUSE_S))
                continue
        return


def follow_session(niceness: int = 0) -> None:
    """Lowers the priority of this process, and gives its session that of its parent's session.

    Args:
        niceness: how much lower this process is, and the session that it began. Another session is
            left alone.
    """
    if niceness:
        with contextlib.suppress(OSError):
            os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    wanted = min(session_niceness(os.getppid()) + niceness, NICEST)
    if wanted != session_niceness(os.getpid()):
        set_session_niceness(os.getpid(), wanted)
