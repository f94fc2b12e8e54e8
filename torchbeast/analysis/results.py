"""Where analyses write their tables and pictures."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchbeast.core.types import UsageError
from torchbeast.records.run_files import file_name, replace_file


def make_directory(directory: Path, flag: str = "--save_dir") -> None:
    """Makes a directory for results, if it is missing.

    Args:
        flag: the flag that named it, for the error message.

    Raises:
        UsageError: it cannot be made, or nothing can be written there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(f"{flag} {directory}: {error.strerror}") from error


def checkpoint_directory(root: Path, intermediate_id: int | None, game: str) -> Path:
    """Returns the directory for results of one checkpoint in one game.

    Args:
        root: the agent's directory for results.
        intermediate_id: each intermediate checkpoint has a separate directory, with the name of its
            file; None for the last checkpoint.
    """
    directory = root if intermediate_id is None else root / f"model.{intermediate_id:09d}"
    return directory / file_name(game)


def remove_earlier(directory: Path) -> None:
    """Removes the pictures and checks of an earlier game, which would stay among the new ones."""
    for pattern in ("[0-9]*.png", "check.json", "check.png"):
        for path in directory.glob(pattern):
            path.unlink()


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes an NPZ file, or leaves what was there."""
    import numpy as np

    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    replace_file(path, data.getbuffer())
