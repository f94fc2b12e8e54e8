"""The tables of a run that is gone on with."""

from __future__ import annotations

import logging
from pathlib import Path

log = logging.getLogger("torchbeast")


def go_on_with(path: Path, last_step: int | None, header: str | None = None) -> None:
    """Leaves a table of earlier with its rows up to a step, or puts it aside.

    Aside goes what belongs to another attempt, has other columns, or is damaged.

    Args:
        path: the table, a CSV file whose first column is the step; need not be there.
        last_step: the step; None for a new attempt.
        header: the line of column names to be gone on with; None for any.
    """
    try:
        rows = path.read_text().splitlines() if path.exists() else []
        if not rows:
            return
        if last_step is None or header not in (None, rows[0]):
            _put_aside(path)
            return
        # The last row may be half a one.
        kept = [r for r in rows[1:] if r.count(",") == rows[0].count(",")]
        kept = [r for r in kept if int(r.partition(",")[0]) <= last_step]
    except ValueError as error:  # UnicodeDecodeError is one.
        log.warning("%s is damaged (%s): put aside as %s", path, error, _put_aside(path).name)
        return
    temporary = path.with_suffix(".csv.tmp")
    temporary.write_text("\n".join([rows[0], *kept]) + "\n")
    temporary.replace(path)


def _put_aside(path: Path) -> Path:
    return path.rename(path.with_suffix(f".{int(path.stat().st_mtime)}.csv"))
