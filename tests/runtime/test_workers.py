import multiprocessing
import multiprocessing.popen_spawn_posix  # Nothing can be imported without open files.
import os
import resource
import signal
import time

import psutil
import pytest

from tests.processes import all_end
from tests.runtime.tasks import start_and_be_killed
from torchbeast.core.types import RunError
from torchbeast.runtime import workers


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(workers.time, "monotonic", lambda: now[0])
    return now


def test_a_worker_whose_parent_died_before_it_began_ends():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    parent = context.Process(target=start_and_be_killed, args=(theirs,))
    parent.start()
    worker = psutil.Process(ours.recv())
    parent.join()
    all_end([worker], timeout=60)


def test_ctrl_c_does_not_reach_a_child_that_only_begins():
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=time.sleep, args=(0,))
    with workers.interrupt_blocked():
        child.start()
    os.kill(child.pid, signal.SIGINT)
    child.join()
    assert child.exitcode == 0
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_process_that_cannot_be_started_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(workers, "MAX_START_ATTEMPTS", 2)
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(RunError, match=r"no process can be started \(.*files\).* ulimit -n"):
            workers.start_worker(process)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_failures_are_forgiven_and_forgotten_until_there_are_too_many_in_a_time(clock, caplog):
    failures = workers.Failures(2, timeout_s=10)
    failure = (1, "actor 1 (Pong)", "failed", "Traceback:\nValueError: no")
    for _ in range(3):  # Four within 650 seconds, again and again.
        for pause in (1, 1, 1, 650):
            failures.note(*failure)
            clock[0] += pause
    assert caplog.messages[1] == (
        "actor 1 (Pong) failed, restarting it (2 of 5 failures within 650 s):\n"
        "Traceback:\nValueError: no"
    )
    clock[0] += 1
    for _ in range(4):
        failures.note(*failure)
    failures.note(0, "actor 0 (Pong)", "was killed by signal 9 (Killed)")
    with pytest.raises(RunError, match=r"^actor 1 \(Pong\) failed, 5 times within 650 s: Value"):
        failures.note(*failure)
    assert caplog.messages[-1] == "actor 1 (Pong) failed:\nTraceback:\nValueError: no"
