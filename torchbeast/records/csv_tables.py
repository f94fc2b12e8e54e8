"""The tables of a run: reading them, and shortening them when the run is resumed."""

from __future__ import annotations

import csv
import io
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from torchbeast.core.types import UsageError
from torchbeast.records.run_files import replace_file

log = logging.getLogger("torchbeast")


def complete_lines(text: str) -> list[str]:
    r"""Returns the lines that have ended. Whoever writes a last line may have written half of it.

    >>> complete_lines("step,loss\n10,0.5\n20,0.")
    ['step,loss', '10,0.5']
    """
    return text.split("\n")[:-1]


class Table:
    """A CSV file with a header, as a run writes it while others read it."""

    def __init__(self, path: Path) -> None:
        """Reads a table. Rows that are not complete are left out, and a last line without its end.

        Raises:
            OSError: the file cannot be read.
            UsageError: it is no such table.
        """
        self._path = path
        try:
            reader = csv.DictReader(complete_lines(path.read_text()))
            self.fields = list(reader.fieldnames or [])
            rows = list(reader)
            if not all(map(str.isprintable, self.fields)):
                raise csv.Error("the name of a column is not printable")
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{path} is damaged: {error}") from error
        # Missing cells are None, superfluous ones have the key None.
        self.rows = [row for row in rows if None not in row.values() and None not in row]

    def column(self, name: str, rows: Sequence[Mapping[str, str]] | None = None) -> np.ndarray:
        """Returns the numbers of a column, of all rows or of some; NaN for empty cells.

        Raises:
            UsageError: there is no such column, or something else is in it.
        """
        rows = self.rows if rows is None else rows
        try:
            return np.array([float(row[name] or "nan") for row in rows])
        except KeyError:
            raise UsageError(f"{self._path} has no column {name}") from None
        except ValueError as error:
            raise UsageError(f"{self._path} is damaged: {name}: {error}") from error


def resume_table(path: Path, last_step: int | None, fields: Sequence[str] | None = None) -> int:
    """Keeps the rows of a table up to a step, or renames the table.

    A table of another attempt, with other columns, or a damaged one is renamed.

    Args:
        path: the table, whose first column is the step; need not be there.
        last_step: the step; None for a new run.
        fields: the columns that the table must have; None for any.

    Returns:
        The step of the last row that is kept; 0 if there is none.
    """
    if not path.exists() or not path.stat().st_size:
        return 0
    try:
        table = Table(path)
        if last_step is None or not table.fields or list(fields or table.fields) != table.fields:
            log.info("%s is of an earlier attempt: renamed to %s", path, _rename(path).name)
            return 0
        steps = table.column(table.fields[0])
    except UsageError as error:
        log.warning("%s: renamed to %s", error, _rename(path).name)
        return 0
    kept = steps <= last_step
    text = io.StringIO()
    writer = csv.DictWriter(text, table.fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(itertools.compress(table.rows, kept))
    replace_file(path, text.getvalue().encode())
    return int(max(steps[kept], default=0))


def _rename(path: Path) -> Path:
    return path.rename(path.with_suffix(f".{int(path.stat().st_mtime)}.csv"))
