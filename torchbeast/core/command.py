"""What every command line does around its work: signals, errors, exit codes."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable

from torchbeast.core.threads import StopSignals
from torchbeast.core.types import RunError, UsageError

log = logging.getLogger("torchbeast")


def run_command(name: str, work: Callable[[StopSignals], int | None]) -> int:
    """The exit code: what ``work`` returns, 2 for misuse, 1 for failure, 128 and the signal's.

    None is 0.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    signals = StopSignals()
    try:
        with signals:
            return work(signals) or 0
    except BaseException as error:
        # After a signal whatever fails fails because of it: code that is being imported turns the
        # interrupt into errors of its own.
        if signals.received is not None:
            return 128 + signals.received
        return _report(name, error)


def _report(name: str, error: BaseException) -> int:
    if isinstance(error, (UsageError, RunError)):
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if not isinstance(error, Exception):
        raise error
    log.exception("%s", error)
    return 1
