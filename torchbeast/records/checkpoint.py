"""Checkpoints: data, never code. How they are written so that none is ever lost, and read.

    python -m torchbeast.records.checkpoint FILE ...

shows what is in them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchbeast.cli.parsing import Parser
from torchbeast.core.types import UsageError
from torchbeast.records.run_files import SHIPPED, intermediate_paths, previous_path, run_of

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


def save(path: Path, contents: dict[str, Any], *, keep_previous: bool = False) -> None:
    """Writes ``contents`` to ``path`` or leaves what was there.

    Args:
        path: the file.
        contents: tensors and plain values.
        keep_previous: whether what was there is kept as :func:`previous_path`.

    Raises:
        OSError: it cannot be written, for example on a full disk.
    """
    # torch writing into a file hides the reason when the disk is full.
    buffer = io.BytesIO()
    torch.save({"format": FORMAT_VERSION, **contents}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        if keep_previous:
            _keep(path)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _keep(path: Path) -> None:
    """Gives the file ``path`` its second name, so that there is a whole file at any moment."""
    temporary = path.with_name(path.name + ".previous.tmp")
    temporary.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        try:
            os.link(path, temporary)
        except OSError:  # A file system without hard links, or nothing to keep.
            shutil.copyfile(path, temporary)
        os.replace(temporary, previous_path(path))


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint without executing anything in it. Raises UsageError."""
    if not path.exists():
        raise UsageError(f"No checkpoint at {path}{_hint(path)}")
    try:
        _check_size(path)
        with torch.serialization.safe_globals(_NUMPY_SCALARS):
            contents = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:
        # torch raises a dozen types here, and the text explains its own options at length.
        raise UsageError(
            f"{path} is not a checkpoint that can be trusted and read "
            f"({type(error).__name__}): only tensors and plain values are loaded"
        ) from error
    if not isinstance(contents, dict) or not isinstance(contents.get("model_state_dict"), dict):
        raise UsageError(f"{path} is not a checkpoint: it has no model_state_dict")
    version = contents.get("format", 0)
    if not isinstance(version, int):
        raise UsageError(f"{path} is not a checkpoint: its format is {version!r}")
    if version > FORMAT_VERSION:
        raise UsageError(f"{path} was written by a later version of this program")
    return contents


def steps_of(contents: dict[str, Any]) -> int | None:
    """Returns the agent steps of a checkpoint, also of one of 2019; None if they are unknown."""
    of_2019 = contents.get("stats")
    steps = contents.get("steps", of_2019.get("step") if isinstance(of_2019, dict) else None)
    return None if steps is None else int(steps)


def _check_size(path: Path) -> None:
    """Raises ValueError for a file that is much larger in memory than on disk.

    PyTorch writes a ZIP archive without compression.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise ValueError("it is compressed")


def _hint(path: Path) -> str:
    """What there is instead of ``path``, for an error message."""
    if path.parent.name == "intermediate":
        steps = intermediate_paths(run_of(path))
        return f"; there are {', '.join(map(str, steps))}" if steps else ""
    savedir, hint = path.parent.parent, ""
    for text, directory in (("runs", savedir), ("shipped agents", SHIPPED)):
        found = sorted(p.parent for p in directory.glob("*/model.tar"))
        names = [run.name for run in found if not run.is_symlink()]
        if names and not (directory is SHIPPED and savedir.resolve() == SHIPPED):
            hint += f"; {text} in {directory}: {', '.join(names)}"
    return hint


def read_meta(path: Path) -> dict[str, Any]:
    """Reads the ``meta.json`` of a checkpoint's run; empty if there is none."""
    try:
        meta = json.loads((run_of(path) / "meta.json").read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


def describe(path: Path, contents: dict[str, Any]) -> Iterator[str]:
    """Describes a checkpoint, line by line."""
    state = contents["model_state_dict"]
    version = contents.get("format")
    yield f"{path}: {path.stat().st_size / 1e6:.1f} MB, " + (
        f"format {version}" if version else "of the program of 2019"
    )
    yield f"  steps: {contents.get('steps', 'not recorded')}"
    for name, value in contents.get("agent", {}).items():
        if name != "tasks":
            yield f"  {name}: {value}"
    tasks = contents.get("agent", {}).get("tasks", ())
    steps = contents.get("task_steps", [None] * len(tasks))
    for i, task in enumerate(tasks):
        line = f"  task {i}: {task}"
        if steps[i] is not None:
            line += f", {steps[i]:,} steps"
        if "baseline.mu" in state:
            line += f", mu {state['baseline.mu'][i]:.4g}, sigma {state['baseline.sigma'][i]:.4g}"
        yield line
    for name in ("preprocessing", "frame_format", "frame_height", "frame_width", "seed"):
        if name in contents:
            yield f"  {name}: {contents[name]}"
    yield f"  optimizer: {'yes' if 'optimizer_state_dict' in contents else 'no'}"
    yield f"  parameters and buffers: {sum(t.numel() for t in state.values()):,} numbers"
    for name, tensor in state.items():
        shape = "x".join(map(str, tensor.shape)) or "one number"
        yield f"    {name:32} {shape:16} {str(tensor.dtype).removeprefix('torch.')}"


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``python -m torchbeast.records.checkpoint``."""
    parser = Parser("records.checkpoint", "Shows what is in checkpoints.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="A checkpoint.")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    for path in make_parser().parse_args(argv).files:
        try:
            contents = load(path)
        except UsageError as error:
            print(f"checkpoint: error: {error}", file=sys.stderr)
            return 2
        print("\n".join(describe(path, contents)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
