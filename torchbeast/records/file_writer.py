"""The files of a run: meta.json, tables, out.log; and its scalars."""

from __future__ import annotations

import contextlib
import csv
import datetime
import importlib.metadata
import io
import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torchbeast.core.types import RunError, UsageError
from torchbeast.records import run_files
from torchbeast.records.csv_tables import resume_table
from torchbeast.records.scalars import ScalarWriter
from torchbeast.records.scores import SCORE_FIELDS
from torchbeast.runtime.text import EscapingFormatter

log = logging.getLogger("torchbeast")


class FileWriter:
    """Writes a run's records.

    ``fields`` are the columns of logs.csv, fixed for the run. With ``last_step`` the records of a
    run are resumed at that step: rows that a killed run wrote after its last checkpoint are
    dropped. Without it the files of earlier records are renamed. If the run ``is_over`` nothing
    will be learned, and meta.json stays that of the last start that learned.

    Scalars go to TensorBoard and, with ``use_wandb``, to Weights & Biases. Their configuration is
    ``meta`` with the flags of ``meta["args"]`` beside the other entries.

    Records never end a run: what cannot be written is said once and left out.
    """

    def __init__(
        self,
        savedir: str,
        xpid: str,
        meta: dict[str, Any],
        fields: list[str],
        last_step: int | None = None,
        use_wandb: bool = False,
        is_over: bool = False,
    ) -> None:
        self.path = run_files.run_path(savedir, xpid).absolute()
        self._fields = fields
        self._failed: set[str] = set()
        config = {**meta.get("args", {}), **{k: v for k, v in meta.items() if k != "args"}}
        with run_files.refuse_unwritable(savedir):
            self._open(last_step)
            if not is_over:
                self._write_meta(meta)
            self._scalars = ScalarWriter(self.path, config, last_step, use_wandb=use_wandb)
            self._link_latest()

    def _open(self, last_step: int | None) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        run_files.remove_temporary(self.path)
        self._handler = _QuietFileHandler(self.path / "out.log")
        self._handler.setFormatter(
            EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        )
        logging.getLogger().addHandler(self._handler)
        resume_table(self.path / "logs.csv", last_step, self._fields)
        self.evaluated_step = resume_table(self.path / "scores.csv", last_step, SCORE_FIELDS)
        # A row has the step before the update: that of the last step is computed again.
        resume_table(self.path / "gradients.csv", None if last_step is None else last_step - 1)
        run_files.resume_copies(self.path, last_step)
        self._append("logs.csv", self._fields)

    def error(self, error: BaseException) -> None:
        """Writes an error to out.log alone, with its traceback unless it is a known one."""
        is_known = isinstance(error, (UsageError, RunError))
        trace = None if is_known else (type(error), error, error.__traceback__)
        self._handler.handle(
            logging.LogRecord(log.name, logging.ERROR, __file__, 0, "%s", (error,), trace)
        )

    def log(self, row: dict[str, Any]) -> None:
        """Appends a row to logs.csv; missing columns stay empty."""
        self._append("logs.csv", self._fields, row)

    def scores(self, rows: Iterable[dict[str, Any]]) -> None:
        """Appends the rows of one evaluation to scores.csv, with the columns ``SCORE_FIELDS``."""
        self._append("scores.csv", SCORE_FIELDS, *rows)

    def scalars(self, values: dict[str, float], step: int) -> None:
        """Writes scalars at agent step ``step`` for TensorBoard."""
        self._scalars.write(values, step)

    def gradients(self, statistics: dict[str, float], step: int) -> None:
        """Appends a row to gradients.csv, and the same as scalars."""
        self._append("gradients.csv", ["step", *statistics], {"step": step, **statistics})
        self.scalars({f"gradients/{name}": x for name, x in statistics.items()}, step)

    def close(self) -> None:
        """Closes the scalars and out.log."""
        self._scalars.close()
        logging.getLogger().removeHandler(self._handler)
        with self._records("out.log"):
            self._handler.close()

    def _append(self, name: str, fields: list[str], *rows: dict[str, Any]) -> None:
        """Appends ``rows`` to a table, which gets its header at first."""
        with self._records(name), open(self.path / name, "ab", buffering=0) as file:
            end = file.tell()
            text = io.StringIO()
            writer = csv.DictWriter(text, fields, lineterminator="\n")
            if end == 0:
                writer.writeheader()
            writer.writerows(rows)
            data = text.getvalue().encode()
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:
                # Else the next row would continue half of this one.
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise

    @contextlib.contextmanager
    def _records(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if name not in self._failed:
                self._failed.add(name)
                log.error("Cannot write %s: %s", self.path / name, error)

    def _write_meta(self, meta: dict[str, Any]) -> None:
        text = json.dumps({**meta, **environment_facts()}, indent=2, default=str)
        run_files.replace_file(self.path / "meta.json", (text + "\n").encode())

    def _link_latest(self) -> None:
        link = self.path.parent / run_files.LATEST
        temporary = self.path.parent / f".latest.{os.getpid()}"
        try:
            temporary.symlink_to(self.path.name)  # Relative: the savedir may move.
            temporary.replace(link)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            log.warning("Cannot link %s: %s", link, error)


class _QuietFileHandler(logging.FileHandler):
    """A full disk must not fill the console, too."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


# Others may be secrets: SLURM_JWT is a token.
JOB_VARIABLES = (
    "SLURM_ARRAY_",
    "SLURM_JOB",
    "SLURM_NNODES",
    "SLURM_NODE",
    "SLURM_NTASKS",
    "SLURM_PROCID",
)


def environment_facts() -> dict[str, Any]:
    """Returns the versions, git revision and, of the environment, what SLURM says of the job."""
    versions = {"python": platform.python_version()}
    for package in ("torch", "numpy", "gymnasium", "ale-py", "opencv-python-headless"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "versions": versions,
        "git": git_revision(Path(__file__).parents[2]),
        "slurm": {k: v for k, v in os.environ.items() if k.startswith(JOB_VARIABLES)},
    }


def git_revision(checkout: Path) -> str | None:
    """Returns the revision of a checkout; None if it is none, or git is not installed."""
    if not (checkout / ".git").exists():
        return None  # An installed package may lie inside the checkout of another project.
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        git = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return git.stdout.strip() or None
