"""What every command line does around its work: signals, errors, exit codes."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import logging
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torchbeast
from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.text import EscapingFormatter, escape, first_line, typed_line
from torchbeast.runtime.threads import work_threads_left

log = logging.getLogger("torchbeast")

# What is wrong about a path that the user named.
WRONG_PATHS = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
# What the machine refuses, which no traceback explains.
MACHINE_LIMITS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
}
# What torch says when memory runs out, on a GPU and on a CPU.
NO_MEMORY = ("out of memory", "can't allocate memory")
# Consequences of a signal that other processes get, too: servers, ranks and readers are gone.
SIGNAL_ERRORS = (RunError, ConnectionError, EOFError)


def run_command(name: str, work: Callable[[StopSignals], object]) -> int:
    """Runs a command's work and turns what it raises into a message and an exit code.

    Args:
        name: the command's name, for messages.
        work: gets the signals, to enter once it has something to save. Before that Ctrl-C ends the
            process by the signal's default action.

    Returns:
        The exit code: 0, 2 for misuse, 1 for failure, 128 and the
        signal's number after a signal, that of SIGPIPE if nobody reads the output any more.
    """
    open_streams()
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    threading.excepthook = _report_thread
    # Else the interpreter's end looks for garbage among all objects of torch, for half a second.
    atexit.register(gc.freeze)
    code = _run_work(name, work)
    if work_threads_left():
        # Before Python 3.14 the interpreter's end unwinds the stacks of threads that come back from
        # C++, which aborts the process if the C++ code forbids it, as torch's does.
        atexit.register(_end_process, code)
    return code


def open_streams() -> None:
    """Opens the standard streams that the caller has closed, as with ``2>&-``: nobody reads them.

    Else the next file that is opened would take their place, and get what this process and its
    children print.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _report_thread(failure: threading.ExceptHookArgs) -> None:
    """A thread of a library has failed: this package's report their errors themselves."""
    if failure.exc_value is not None:
        log.warning("A thread of a library failed: %s", typed_line(failure.exc_value))


def print_error(name: str, text: object) -> None:
    """Prints an error of the program ``name`` in one line."""
    print(f"{name}: error: {escape(str(text))}", file=sys.stderr, flush=True)


def _run_work(name: str, work: Callable[[StopSignals], object]) -> int:
    signals = StopSignals()
    with default_interrupt():
        try:
            work(signals)
            sys.stdout.flush()
        except BaseException as error:
            if signals.received is None:
                return _report(name, error)
            if isinstance(error, Exception) and not isinstance(error, SIGNAL_ERRORS):
                signal_name = signal.Signals(signals.received).name
                log.error("Ended by %s; meanwhile: %s", signal_name, typed_line(error))
        else:
            if signals.received is None:
                return 0
    return 128 + signals.received


def _end_process(code: int) -> None:
    logging.shutdown()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def default_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process instead of raising KeyboardInterrupt. A context manager.

    Python raises it wherever it happens to be. Inside the import of an extension module such as
    torch's that can abort the process.
    """
    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _has_no_reader() -> bool:
    """Whether standard output is a pipe whose reader has gone, such as ``head``."""
    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    # The interpreter's end would fail to write what is left.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


def _is_of_package(error: BaseException) -> bool:
    """Whether this package raised an error, and not code that it called."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return Path(frame.f_code.co_filename).is_relative_to(Path(torchbeast.__file__).parent)


def _report(name: str, error: BaseException) -> int:
    if isinstance(error, (UsageError, RunError)):
        print_error(name, error)
        return 2 if isinstance(error, UsageError) else 1
    if not isinstance(error, Exception):
        raise error
    if isinstance(error, ModuleNotFoundError) and _is_of_package(error):
        print_error(
            name,
            f"{sys.executable} has no module {error.name}; what make has installed is in .venv: "
            "source .venv/bin/activate",
        )
        return 2
    if isinstance(error, OSError) and error.errno in WRONG_PATHS and error.filename is not None:
        print_error(name, f"{error.filename}: {error.strerror}")
        return 2
    if isinstance(error, OSError) and error.errno in MACHINE_LIMITS:
        print_error(
            name, f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        )
        return 1
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in NO_MEMORY)
    ):
        print_error(
            name,
            "out of memory; fewer environments, smaller batches and shorter rollouts need less "
            f"({first_line(error)})",
        )
        return 1
    if isinstance(error, BrokenPipeError) and _has_no_reader():
        return 128 + signal.SIGPIPE
    log.exception("%s", error)
    return 1
