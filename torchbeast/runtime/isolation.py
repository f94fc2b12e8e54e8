"""Runs functions in child processes. A crash or a hang there does not affect this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime.text import typed_line
from torchbeast.runtime.watchdog import PauseDetector
from torchbeast.runtime.workers import begin_worker

Result = TypeVar("Result")

# A task counts as hung after so long without a message.
DEADLINE_S = 300.0
# A new child process may take so much longer until it has imported what its task needs.
START_S = 60.0
# The shortest time between two messages that a task is alive; less than any deadline.
ALIVE_INTERVAL_S = 0.1


class Message(NamedTuple):
    """What a child process says to its parent."""

    kind: str
    """alive, done, misuse (a UsageError) or failed."""
    value: Any = None
    """The task's result, or what went wrong."""


class _Child:
    """A child process and the task that it runs."""

    def __init__(self, context: multiprocessing.context.SpawnContext) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,))
        self.process.start()
        theirs.close()  # So that the pipe ends with the process.
        self.task = ""
        self.heard_at = 0.0

    def begin(self, task: str, function: Callable[..., Any]) -> None:
        self.task, self.heard_at = task, time.monotonic() + START_S
        with contextlib.suppress(OSError):  # It died: hear() finds out.
            self.pipe.send(function)

    def hear(self) -> Message:
        """The next message. Raises RunError if the process has ended."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            self.check_life()
            raise
        self.heard_at = time.monotonic()
        return message

    def check_life(self) -> None:
        """Raises RunError if the process has ended."""
        if self.process.exitcode is not None:
            reason = _describe_exit(self.process.exitcode)
            raise RunError(f"{self.task}: its process {reason}") from None


def run_isolated(
    tasks: Mapping[str, Callable[[Callable[[], None]], Result]],
    *,
    num_processes: int = 1,
    deadline_s: float = DEADLINE_S,
    on_progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Result]:
    """Runs every task once, in fresh child processes that end afterwards.

    The processes import what a task names, and the main module of this process: a script needs
    ``if __name__ == "__main__"``.

    Args:
        tasks: by name, functions that can be pickled. Each gets a function; a task that may take
            longer than ``deadline_s`` has to call it meanwhile, at least that often.
        num_processes: how many tasks run at a time.
        deadline_s: seconds after which a silent task counts as hung.
        on_progress: called with the number of finished tasks, at least once a second.

    Returns:
        The result of each task, in the order of ``tasks``.

    Raises:
        UsageError: a task raised it.
        RunError: a task failed in another way, ended its process or hung. The text begins with the
            task's name. A traceback is on standard error.
    """
    waiting = list(tasks)
    results: dict[str, Result] = {}
    with _start(min(num_processes, len(waiting))) as children:
        busy = set()
        pauses = PauseDetector()
        for child in children:
            task = waiting.pop(0)
            child.begin(task, tasks[task])
            busy.add(child)
        while busy:
            for child in _wait(busy, deadline_s, pauses.awake_since()):
                message = child.hear()
                if message.kind == "misuse":
                    raise message.value
                if message.kind == "failed":
                    raise RunError(f"{child.task}: {message.value}")
                if message.kind != "done":
                    continue
                results[child.task] = message.value
                if waiting:
                    task = waiting.pop(0)
                    child.begin(task, tasks[task])
                else:
                    busy.remove(child)
            on_progress(len(results))
    return {task: results[task] for task in tasks}


@contextlib.contextmanager
def _start(count: int) -> Iterator[list[_Child]]:
    """Starts child processes and kills them when the context ends."""
    # Not forked: a fork would copy locks that other threads hold, but not these threads.
    context = multiprocessing.get_context("spawn")
    children: list[_Child] = []
    try:
        for _ in range(count):
            children.append(_Child(context))
        yield children
    finally:
        for child in children:
            child.process.kill()
        for child in children:
            child.process.join()
            child.pipe.close()


def _wait(children: set[_Child], deadline_s: float, awake_since: float) -> list[_Child]:
    """Waits up to a second for messages. Returns who sent one. Raises RunError if a child hangs."""
    silent = min(children, key=lambda child: child.heard_at)
    left = max(silent.heard_at, awake_since) + deadline_s - time.monotonic()
    if left <= 0 and not silent.pipe.poll():
        raise RunError(f"{silent.task}: it has hung for {deadline_s:g} seconds")
    by_pipe = {child.pipe: child for child in children}
    ready = multiprocessing.connection.wait(list(by_pipe), timeout=max(0.0, min(left, 1.0)))
    if not ready:
        # A process that a task started may hold a pipe open for longer than the task lives.
        for child in children:
            child.check_life()
    return [by_pipe[pipe] for pipe in ready]  # type: ignore[index]


def _work(pipe: Any) -> None:
    """The child process: runs the tasks that come through the pipe, until the pipe is closed."""
    begin_worker()
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(Message("alive"))  # From here on the time is the task's.
        pipe.send(_attempt(task, _Alive(pipe)))


class _Alive:
    """Tells the parent that a task is alive, at most once in ``ALIVE_INTERVAL_S``."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._told_at = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._told_at > ALIVE_INTERVAL_S:
            self._pipe.send(Message("alive"))
            self._told_at = time.monotonic()


def _attempt(task: Callable[[Callable[[], None]], Any], alive: _Alive) -> Message:
    try:
        return Message("done", task(alive))
    except UsageError as error:
        return Message("misuse", UsageError(str(error)))
    except SystemExit as error:
        return Message("failed", f"it called sys.exit({error.code!r})")
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        return Message("failed", typed_line(error))


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by signal {-code} ({signal.strsignal(-code)})"
    return f"ended itself with exit code {code}"
