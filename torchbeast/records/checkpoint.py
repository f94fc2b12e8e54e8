"""Checkpoints: data, never code. How they are written so that none is ever lost, and read."""

from __future__ import annotations

import difflib
import io
import json
import zipfile
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

from torchbeast.core.learner import find_not_finite
from torchbeast.core.types import (
    AgentConfig,
    Between,
    Count,
    Name,
    ObservationConfig,
    UsageError,
)
from torchbeast.records.run_files import (
    SHIPPED,
    intermediate_paths,
    replace_file,
    run_of,
)
from torchbeast.records.validation import read
from torchbeast.runtime.text import first_line

# Raised when what a checkpoint holds changes its meaning.
FORMAT_VERSION = 1
# Numbers among the statistics of 2019's files; data like tensors. NumPy 1 had them elsewhere.
_SCALAR = np.float64(0).__reduce__()[0]
_NUMPY_SCALARS: list[Any] = [
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(name)) for name in ("float64", "float32", "int64", "int32", "bool")),
]
# What a checkpoint may hold, and what is used of meta.json.
CONTENTS: dict[str, Any] = {
    **get_type_hints(ObservationConfig, include_extras=True),
    "format": Count,
    "model_state_dict": dict[str, Tensor],
    "agent": AgentConfig,
    "optimizer_state_dict": dict[str, Any],
    "steps": Count,
    "learner_steps": Count,
    "task_steps": list[Count],
    "skipped_updates": Count,
    "seed": Count | None,
    "progress": {
        "seconds": Annotated[float, Between(0.0, 1e12)],
        "returns": list[list[float]],
        "games": list[Count],
    },
    "stats": {"step": Count},  # In checkpoints of 2019.
}
META = {
    "args": dict[str, bool | int | float | str | None],
    "seed": Count | None,
    "tasks": list[Name],
}
MAX_META_BYTES = 2**20
_WAY_OUT = "choose another one, or move it away to start anew"


def save(path: Path, contents: dict[str, Any]) -> None:
    """Writes ``contents`` to ``path`` or leaves what was there.

    Args:
        contents: tensors and plain values.

    Raises:
        OSError: it cannot be written, for example on a full disk.
    """
    # torch writing into a file hides the reason when the disk is full.
    buffer = io.BytesIO()
    torch.save({"format": FORMAT_VERSION, **contents}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, buffer.getbuffer())


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint without executing anything in it, and checks all that it says.

    Returns:
        What has the types of ``CONTENTS``; ``agent`` has every field of an AgentConfig.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    if not path.exists():
        raise UsageError(f"No checkpoint at {path}{_hint(path)}")
    try:
        _check_archive(path)
        with torch.serialization.safe_globals(_NUMPY_SCALARS):
            contents = torch.load(path, map_location="cpu", weights_only=True)
    except (ValueError, zipfile.BadZipFile) as error:
        raise damaged(path, error) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror or error}): {_WAY_OUT}"
        ) from error
    except Exception as error:
        # torch raises a dozen types here, and the text explains its own options at length.
        raise UsageError(
            f"{path} is not a checkpoint, or it is damaged: only tensors and plain values are "
            f"loaded; {_WAY_OUT}"
        ) from error
    if not isinstance(contents, dict) or "model_state_dict" not in contents:
        raise UsageError(f"{path} is not a checkpoint: it has no model_state_dict")
    version = contents.get("format")
    if isinstance(version, int) and version > FORMAT_VERSION:  # It may have other contents.
        raise UsageError(f"{path} was written by a later version of this program")
    try:
        contents = read(CONTENTS, contents)
        _check_sizes(contents, path.stat().st_size)
        if "agent" in contents:
            contents["agent"] = contents["agent"]._asdict()
        faulty = find_not_finite(contents["model_state_dict"])
        if faulty:
            raise ValueError(f"{faulty[0]} is not finite")
    except ValueError as error:
        raise damaged(path, error) from error
    return contents


def damaged(path: Path, error: Exception) -> UsageError:
    """Returns the error that says that a file is damaged."""
    return UsageError(f"{path} is damaged ({first_line(error)}): {_WAY_OUT}")


def _check_archive(path: Path) -> None:
    """Checks the ZIP archive that PyTorch writes, without compression.

    Raises ValueError or BadZipFile if it is larger in memory than on disk, or a CRC-32 in it is
    wrong. PyTorch checks neither.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise ValueError("it is compressed")
            faulty = archive.testzip()
            if faulty is not None:
                raise ValueError(f"the CRC-32 of {faulty!r} is wrong")


def _check_sizes(contents: dict[str, Any], num_bytes: int) -> None:
    """Raises ValueError if numbers stand for many, or a list is not of the agent's games."""
    state = contents["model_state_dict"]
    if sum(tensor.nbytes for tensor in state.values()) > num_bytes:
        raise ValueError("its weights have fewer numbers than their shapes")
    if "agent" not in contents:
        return
    progress, num_tasks = contents.get("progress", {}), len(contents["agent"].tasks)
    by_game = {**progress, "task_steps": contents.get("task_steps"), **state}
    for name in ("task_steps", "games", "returns", "baseline.mu", "baseline.sigma"):
        values = by_game.get(name)
        shape = values.shape if isinstance(values, Tensor) else (len(values or ()),)
        if values is not None and shape != (num_tasks,):
            raise ValueError(f"{name} is not of {num_tasks} games")


def steps_of(contents: dict[str, Any]) -> int | None:
    """Returns the agent steps of a checkpoint, also of one of 2019; None if they are unknown."""
    steps: int | None = contents.get("steps", contents.get("stats", {}).get("step"))
    return steps


def _hint(path: Path) -> str:
    """What there is instead of ``path``, for an error message."""
    if path.parent.name == "intermediate":
        if run_of(path).resolve().is_relative_to(SHIPPED):
            return "; the copies of a shipped agent hold filters alone: name no step"
        steps = intermediate_paths(run_of(path))
        return f"; there are {', '.join(map(str, steps))}" if steps else ""
    savedir, hint, known = path.parent.parent, "", []
    for text, directory in (("runs", savedir), ("shipped agents", SHIPPED)):
        found = sorted(p.parent for p in directory.glob("*/model.tar"))
        names = [run.name for run in found if not run.is_symlink()]
        if names and not (directory is SHIPPED and savedir.resolve() == SHIPPED):
            hint += f"; {text} in {directory}: {', '.join(names)}"
        known += [name for name in names if name != path.parent.name]
    if not SHIPPED.is_dir():
        hint += "; a clone of the repository has the shipped agents: name CLONE/models/NAME"
    near = difflib.get_close_matches(path.parent.name, known, n=1)
    return (f" (did you mean {near[0]}?)" if near else "") + hint


def read_meta(path: Path) -> dict[str, Any]:
    """Reads the ``meta.json`` of a checkpoint's run; empty if there is none.

    Returns:
        What has the types of ``META``.

    Raises:
        UsageError: it is damaged.
    """
    file = run_of(path) / "meta.json"
    try:
        if file.stat().st_size > MAX_META_BYTES:
            raise ValueError(f"it has more than {MAX_META_BYTES:,} bytes")
        meta: dict[str, Any] = read(META, json.loads(file.read_text()), "its content")
    except OSError:
        return {}
    except (ValueError, RecursionError) as error:
        raise damaged(file, error) from error
    return meta
