"""Tasks for child processes, in a module that is imported quickly."""

import os
import signal
import time

from torchbeast.runtime.workers import begin_worker, fork_context


def succeed(alive):
    return "done"


def hang(alive):
    while True:
        time.sleep(1.0)


def live_slowly(alive):
    """Longer than a second and a half, but never silent for so long."""
    for _ in range(20):
        alive()
        time.sleep(0.1)
    return "done"


def begin_late():
    """A worker that is slow to begin, and then works for ever."""
    time.sleep(1.0)
    begin_worker()
    hang(None)


def start_and_be_killed(pipe):
    """Starts a worker, sends its process id and dies before it has begun."""
    worker = fork_context().Process(target=begin_late)
    worker.start()
    pipe.send(worker.pid)
    os.kill(os.getpid(), signal.SIGKILL)
