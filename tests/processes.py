"""Watching runs that are processes: what they have written, and what is left of them."""

import contextlib
import time

import psutil

from torchbeast.records.csv_tables import Table


def wait_until(condition, timeout=300):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_logs(run):
    """The rows of a run's logs.csv; none before there is one."""
    path = run / "logs.csv"
    return Table(path).rows if path.exists() else []


def last_step(run):
    """The last step in a run's logs.csv; 0 before there is one."""
    rows = read_logs(run)
    return int(rows[-1]["step"]) if rows else 0


def family(process):
    """A started process and all its descendants; none if it is gone."""
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def find(run, text):
    """A process of a run whose command line contains ``text``; None if there is none."""
    for member in run.family():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(text in word for word in member.cmdline()):
                return member
    return None


def all_end(members, timeout=300):
    """Checks that all processes of a run end."""
    try:
        wait_until(lambda: not any(map(is_alive, members)), timeout)
    finally:
        for process in filter(is_alive, members):  # They would hold the pipes of the run open.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def is_evaluating(members):
    """Whether one of a run's processes plays an evaluation: those have a low priority."""
    usual = psutil.Process().nice()
    assert usual < 19, "at the lowest priority this cannot be told"
    for process in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.nice() > usual:
                return True
    return False


def kill_family(process):
    """Kills a started process and all its descendants; one may end by itself meanwhile."""
    for member in family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


def is_alive(process):
    # A zombie has ended; nobody may be there to hear of it.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def nothing_left(run, members, timeout=300):
    """Checks that all processes of a run end, and that its sockets are gone then."""
    all_end(members, timeout)
    assert not list(run.tmp.glob("torchbeast-*"))
