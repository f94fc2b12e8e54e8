"""What every command line does around its work: signals, errors, exit codes."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable

from torchbeast.core.threads import StopSignals
from torchbeast.core.types import RunError, UsageError

log = logging.getLogger("torchbeast")


def run_command(name: str, work: Callable[[StopSignals], int]) -> int:
    """The exit code: what ``work`` returns, 2 for misuse, 1 for failure, 128 and the signal's."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    signals = StopSignals()
    try:
        with signals:
            return work(signals)
    except (UsageError, RunError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + (signals.received or signal.SIGINT)
    except Exception as error:
        log.exception("%s", error)
        return 1
