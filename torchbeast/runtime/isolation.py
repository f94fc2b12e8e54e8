"""Runs functions in child processes. A crash or a hang there does not affect this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime.alarm import describe_end, set_alarm
from torchbeast.runtime.text import typed_line
from torchbeast.runtime.workers import begin_worker, start_with_pipe

Result = TypeVar("Result")

# A task that does not say for so long that it is alive counts as hung.
DEADLINE_S = 300.0
# A new child process may take so much longer until it has imported what its task needs.
START_S = 60.0


class _Child:
    """A child process and the task that it runs."""

    def __init__(self, context: multiprocessing.context.SpawnContext, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self.process, self.pipe = start_with_pipe(context, _work, deadline_s)
        self.task = ""

    def begin(self, task: str, function: Callable[..., Any]) -> None:
        self.task = task
        with contextlib.suppress(OSError):  # It died: hear() finds out.
            self.pipe.send(function)

    def hear(self) -> Any:
        """The task's result. Raises what :func:`run_isolated` raises."""
        try:
            result, error = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise self._death() from None
        if isinstance(error, RunError):
            raise RunError(f"{self.task}: {error}")
        if error is not None:
            raise error
        return result

    def check_life(self) -> None:
        """Raises RunError if the process has ended."""
        if self.process.exitcode is not None:
            raise self._death()

    def _death(self) -> RunError:
        reason = describe_end(self.process.exitcode, self._deadline_s)
        return RunError(f"{self.task}: it {reason}")


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
    waiting = iter(tasks.items())
    results: dict[str, Result] = {}
    with _start(min(num_processes, len(tasks)), deadline_s) as children:
        for child in children:
            child.begin(*next(waiting))
        busy = set(children)
        while busy:
            for child in _wait(busy):
                results[child.task] = child.hear()
                task = next(waiting, None)
                if task is None:
                    busy.remove(child)
                else:
                    child.begin(*task)
            on_progress(len(results))
    return {task: results[task] for task in tasks}


@contextlib.contextmanager
def _start(count: int, deadline_s: float) -> Iterator[list[_Child]]:
    """Starts child processes and kills them when the context ends."""
    # Not forked: a fork would copy locks that other threads hold, but not these threads.
    context = multiprocessing.get_context("spawn")
    children: list[_Child] = []
    try:
        for _ in range(count):
            children.append(_Child(context, deadline_s))
        yield children
    finally:
        for child in children:
            child.process.kill()
        for child in children:
            child.process.join()
            child.pipe.close()


def _wait(children: set[_Child]) -> list[_Child]:
    """Waits up to a second for messages. Returns who sent one. Raises RunError if one has died."""
    by_pipe = {child.pipe: child for child in children}
    ready = multiprocessing.connection.wait(list(by_pipe), timeout=1.0)
    if not ready:
        # A process that a task started may hold a pipe open for longer than the task lives.
        for child in children:
            child.check_life()
    return [by_pipe[pipe] for pipe in ready]


def _work(deadline_s: float, pipe: Any) -> None:
    """The child process: runs the tasks that come through the pipe, until the pipe is closed."""
    begin_worker()
    set_alarm(START_S + deadline_s)  # Until the first task begins, which is at once.
    while True:
        try:
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        set_alarm(START_S + deadline_s)
        task = pickle.loads(data)  # Imports what the task needs.
        set_alarm(deadline_s)
        outcome = _attempt(task, lambda: set_alarm(deadline_s))
        set_alarm(0.0)
        with contextlib.suppress(OSError):  # The parent has died, as after Ctrl-C.
            pipe.send(outcome)


def _attempt(
    task: Callable[[Callable[[], None]], Any], alive: Callable[[], None]
) -> tuple[Any, UsageError | RunError | None]:
    """Runs a task. Returns its result, and the error that it ended with, if any."""
    try:
        return task(alive), None
    except UsageError as error:
        return None, UsageError(str(error))
    except SystemExit as error:
        return None, RunError(f"it called sys.exit({error.code!r})")
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        return None, RunError(typed_line(error))
