"""Checkpoints: data, never code. Where they lie, how they are written so that none is ever lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from torchbeast.core.types import UsageError

# Raised when what a checkpoint holds changes its meaning.
FORMAT_VERSION = 1


def model_path(savedir: str | Path, xpid: str, intermediate_id: int | None = None) -> Path:
    """The checkpoint of a run, or one of its intermediate ones by step number."""
    run = Path(savedir).expanduser() / xpid
    if intermediate_id is None:
        return run / "model.tar"
    return intermediate_path(run, intermediate_id)


def intermediate_path(run: Path, step: int) -> Path:
    """The copy kept at ``step``.

    >>> intermediate_path(Path("run"), 1234).as_posix()
    'run/intermediate/model.000001234.tar'
    """
    return run / "intermediate" / f"model.{step:09d}.tar"


def save(path: Path, contents: dict[str, Any]) -> None:
    """Writes ``contents`` to ``path`` or leaves what was there.

    Raises OSError if it cannot be written, for example on a full disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save({"format": FORMAT_VERSION, **contents}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # torch's own writer says so when the disk is full.
            raise OSError(str(error).splitlines()[0]) from error
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint without executing anything in it. Raises UsageError."""
    if not path.exists():
        raise UsageError(f"No checkpoint at {path}{_hint(path)}")
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises a dozen types here, and the text explains its own options at length.
        raise UsageError(
            f"{path} is not a checkpoint that can be trusted and read "
            f"({type(error).__name__}): only tensors and plain values are loaded"
        ) from error
    if not isinstance(contents, dict) or "model_state_dict" not in contents:
        raise UsageError(f"{path} is not a checkpoint: it has no model_state_dict")
    if contents.get("format", 0) > FORMAT_VERSION:
        raise UsageError(f"{path} was written by a later version of this program")
    return contents


def _hint(path: Path) -> str:
    savedir = path.parent.parent
    if path.parent.name == "intermediate":
        return f": see {path.parent}"
    runs = sorted(p.parent.name for p in savedir.glob("*/model.tar") if not p.parent.is_symlink())
    return f"; --savedir {savedir} has {', '.join(runs[-5:])}" if runs else ""


def read_meta(path: Path) -> dict[str, Any]:
    """The ``meta.json`` beside a checkpoint (or above ``intermediate``); empty if there is none."""
    run = path.parent.parent if path.parent.name == "intermediate" else path.parent
    try:
        meta = json.loads((run / "meta.json").read_text())
    except (OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}
