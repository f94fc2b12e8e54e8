"""``--json``: results as a JSON document, in a file or on standard output."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from torchbeast.core.types import UsageError


def check_json_target(target: str | None) -> None:
    """Raises UsageError if :func:`write_json` cannot write there, before any work is done."""
    if target is None or target == "-":
        return
    path = Path(target).expanduser()
    if path.is_dir() or not path.parent.is_dir():
        reason = "is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise UsageError(f"--json {target}: {reason}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--json {target}: {os.strerror(errno.EACCES)}")


def write_json(document: Any, target: str) -> None:
    """Writes plain values as JSON to the file ``target``, or to standard output if that is ``-``.

    Raises:
        UsageError: the file cannot be written.
    """
    text = json.dumps(document, indent=2)
    if target == "-":
        print(text)
        return
    try:
        Path(target).expanduser().write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"--json {target}: {error.strerror}") from error
