"""The trainer's side of the evaluator: its process, and the messages that both exchange.

The evaluator (``torchbeast/evaluator.py``) is a separate process that a training run starts. It
plays games with checkpoints that the trainer names. Messages are the NamedTuples below, and the
scores of ``torchbeast/records/scores.py``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

# How long the process gets to remove unfinished files. It answers within a step of its games.
EXIT_TIMEOUT_S = 0.5
# Where cores are scarce, training goes first.
NICENESS = 10


class Request(NamedTuple):
    """To the evaluator: evaluate an agent. It answers with scores, failures and one Finished."""

    checkpoint: Path
    directory: Path
    """The run's directory, for films."""
    xpid: str
    step: int
    agent_type: str
    """The class of the agent, which may be the user's own."""
    games: tuple[str, ...]
    """The games of the run."""
    num_episodes: int
    """Full games per game and policy; 0: no scores."""
    film: bool


class Failure(NamedTuple):
    """From the evaluator: something could not be done."""

    what: str
    reason: str


class Notice(NamedTuple):
    """From the evaluator: what it logs."""

    text: str


class Alive(NamedTuple):
    """From the evaluator, while it works: that it does not hang."""


class Finished(NamedTuple):
    """From the evaluator: a request is done."""

    step: int


class EvaluatorProcess:
    """Starts and ends the evaluator's process, and exchanges messages with it.

    The process is a fresh interpreter, so that it inherits neither threads nor gRPC objects. It is
    in a new session: Ctrl-C reaches the trainer alone. It ends when its connection does, and
    so with the trainer, however that ends.

    One thread may send while another receives. Messages are small: sending does not wait.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._sending = threading.Lock()  # So that the connection is not closed meanwhile.
        self.heard_at = 0.0
        """When something was received last, by time.monotonic."""

    def start(self, niceness: int = NICENESS) -> None:
        """Starts the process, from the main thread: on Linux it ends with the thread, too.

        Args:
            niceness: how much lower than the trainer's its priority is.

        Raises:
            OSError: the machine has no process or no file descriptor left.
        """
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            arguments = f"{theirs.fileno()}, niceness={niceness}"
            code = f"from torchbeast.evaluator import serve; serve({arguments})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # A single thread is wanted everywhere; libraries read this when they are loaded.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def send(self, message: Request) -> bool:
        """Returns False if the process is gone."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            return False
        return True

    def receive(self, timeout: float = 0.0) -> Any:
        """Waits for a message.

        Args:
            timeout: seconds.

        Returns:
            The message; None if none came in time.

        Raises:
            EOFError: the process is gone.
        """
        try:
            if not self._connection.poll(timeout):
                return None
            message = self._connection.recv()
        except OSError as error:
            raise EOFError from error
        self.heard_at = time.monotonic()
        return None if isinstance(message, Alive) else message

    def exit_code(self) -> int | None:
        """Returns the exit code of a process that is gone; None if it does not end."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(EXIT_TIMEOUT_S)
        return None

    def disconnect(self) -> None:
        """Makes the process end soon."""
        if self._connection is not None:
            with self._sending:
                self._connection.close()

    def close(self) -> None:
        """Ends the process, within ``EXIT_TIMEOUT_S`` whatever it does."""
        self.disconnect()
        if self._process is not None and self.exit_code() is None:
            self._process.kill()
            self._process.wait()
