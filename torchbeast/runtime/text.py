"""How numbers, errors and commands are written for people."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Formats a number of things.

    >>> counted(1, "learner thread"), counted(2, "learner thread")
    ('1 learner thread', '2 learner threads')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def escape(text: str) -> str:
    r"""Escapes what a terminal would obey: unprintable characters, but for line feeds and tabs.

    >>> escape("\x1b[2J\u202e\n")
    '\\x1b[2J\\u202e\n'
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


class EscapingFormatter(logging.Formatter):
    """Formats log messages for terminals and files: names in them may come from anywhere."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats and escapes a message."""
        return escape(super().format(record))


def first_line(error: BaseException) -> str:
    r"""Returns the first line of an error's text that is not empty; its type if there is none.

    >>> first_line(ValueError("\nno\nmore")), first_line(ValueError())
    ('no', 'ValueError')
    """
    return next(filter(str.strip, str(error).splitlines()), type(error).__name__)


def explain_import(error: BaseException) -> str:
    """Returns why code of the user's was not found, and the way out if its module is missing.

    >>> explain_import(ImportError("No module named 'x'"))
    "No module named 'x'; PYTHONPATH must name its directory"
    """
    hint = "; PYTHONPATH must name its directory" if isinstance(error, ImportError) else ""
    return first_line(error) + hint


def typed_line(error: BaseException) -> str:
    """Returns an error's type and the first line of its text.

    >>> typed_line(KeyError("frame")), typed_line(ValueError())
    ("KeyError: 'frame'", 'ValueError')
    """
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"


def python_command() -> str:
    """Returns what starts this Python in a shell, from the working directory.

    That is ``python`` only where the shell finds this one, as in an activated environment.
    """
    directory = os.path.dirname(sys.executable)
    if os.path.dirname(shutil.which("python") or "") == directory:
        return "python"
    command = sys.executable
    with contextlib.suppress(OSError):  # The working directory may be gone.
        near = os.path.relpath(command)
        command = command if near.startswith(os.pardir) else near
    return shlex.quote(command)


def human_time(seconds: float) -> str:
    """Formats a span of time.

    >>> human_time(42), human_time(59.6), human_time(3723), human_time(200000)
    ('42s', '1m00s', '1h02m', '55h33m')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def human_count(number: int) -> str:
    """Formats a count in at most five characters.

    >>> [human_count(number) for number in (0, 950, 12_345, 104_999, 1_050_000, 300_000_000)]
    ['0', '950', '12.3k', '105k', '1.05M', '300M']
    """
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        # 999,600 is written as 1.00M: as 1000k it would be too long.
        if number >= 0.9995 * size:
            value = number / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    return str(number)


def human_return(value: float, *, signed: bool = False) -> str:
    """Formats a return, with one decimal where that matters.

    >>> human_return(17.46), human_return(-17098.14), human_return(2.04, signed=True)
    ('17.5', '-17098', '+2.0')
    """
    return f"{value:{'+' if signed else ''}.{0 if abs(value) >= 1000 else 1}f}"


def format_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats a table with aligned columns: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
