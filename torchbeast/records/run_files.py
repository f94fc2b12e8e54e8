"""The files of a run: where they lie, and how a checkpoint is found by name or path."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import torchbeast
from torchbeast.core.types import UsageError

# Each of these makes a directory that of a run. Without them it may have films of a shipped agent.
RUN_FILES = ("model.tar", "intermediate", "meta.json")
# Ends the names of files that are being written.
TEMPORARY = ".tmp"
# The link in a directory of runs to the newest one.
LATEST = "latest"
# Agents that come with a checkout; an installed wheel has none.
SHIPPED = Path(torchbeast.__file__).resolve().parent.parent / "models"


def run_path(savedir: str | Path, xpid: str) -> Path:
    """Returns the directory of a run."""
    return Path(savedir).expanduser() / xpid


@contextlib.contextmanager
def refuse_unwritable(savedir: str) -> Iterator[None]:
    """Makes a context that raises UsageError if ``savedir`` cannot be written to."""
    try:
        yield
    except OSError as error:  # The disk is full, for example.
        raise UsageError(f"Cannot write to --savedir {savedir}: {error}") from error


def model_path(run: Path, step: int | None = None) -> Path:
    """Returns the checkpoint of a run's directory, or the copy kept at ``step``.

    >>> model_path(Path("run"), 1234).as_posix()
    'run/intermediate/model.000001234.tar'
    """
    if step is None:
        return run / "model.tar"
    return run / "intermediate" / f"model.{step:09d}.tar"


def checkpoint_at(path: Path) -> Path:
    """Returns the checkpoint of a run's directory, and any other path as it is."""
    path = path.expanduser()
    return path / "model.tar" if path.is_dir() else path


def find_checkpoint(savedir: str | Path, xpid: str, intermediate_id: int | None = None) -> Path:
    """Finds the checkpoint of a trained agent.

    Args:
        savedir: the directory of all runs.
        xpid: the name of a run in ``savedir`` or of a shipped agent, or the path of a run's
            directory or of its ``model.tar``, from ``savedir`` or from the working directory.
        intermediate_id: the step number of an intermediate checkpoint.

    Returns:
        The checkpoint's path; where it would be if there is none.
    """
    places = [run_path(savedir, xpid), SHIPPED / xpid]
    if "/" in xpid or xpid.endswith(".tar"):
        places.append(Path(xpid).expanduser().absolute())
    for place in places:
        if os.path.isfile(place) and intermediate_id is None:
            return place
        run = run_of(place) if os.path.isfile(place) else place
        found = model_path(run, intermediate_id)
        # A shipped agent must not hide that a run's checkpoint is missing.
        is_run = any(map(os.path.exists, (run / name for name in RUN_FILES)))
        if os.path.exists(found) or (is_run and place != SHIPPED / xpid):
            return found
    if xpid.endswith(".tar"):
        path = places[-1]
        return path if intermediate_id is None else model_path(run_of(path), intermediate_id)
    is_shipped = intermediate_id is not None and os.path.exists(SHIPPED / xpid / "model.tar")
    return model_path(run_path(SHIPPED if is_shipped else savedir, xpid), intermediate_id)


def find_agent(savedir: str | Path, name: str) -> Path:
    """Finds a checkpoint by one text: a name or path as in :func:`find_checkpoint`.

    ``:STEP`` behind it names an intermediate checkpoint, unless it is part of a run's name.
    """
    run, _, step = name.rpartition(":")
    if run and step.isdecimal() and not run_path(savedir, name).exists():
        return find_checkpoint(savedir, run, int(step))
    return find_checkpoint(savedir, name)


def run_of(path: Path) -> Path:
    """Returns the run's directory of a checkpoint, intermediate or not."""
    return path.parent.parent if path.parent.name == "intermediate" else path.parent


def intermediate_id(path: Path) -> int | None:
    """Returns the step number in an intermediate checkpoint's name; None for any other file.

    >>> intermediate_id(Path("run/intermediate/model.000001234.tar"))
    1234
    """
    if not path.match("intermediate/model.*.tar"):
        return None
    number = path.name.split(".")[1]
    return int(number) if number.isdecimal() else None


def intermediate_paths(run: Path) -> dict[int, Path]:
    """Returns the intermediate checkpoints of a run by their steps, ascending.

    Other files may lie beside them, such as a copy of the best one.
    """
    paths = (run / "intermediate").glob("*.tar")
    steps = ((intermediate_id(path), path) for path in paths)
    return dict(sorted((step, path) for step, path in steps if step is not None))


def resume_copies(run: Path, last_step: int | None) -> None:
    """Renames the copies of another attempt, so that they are not taken for this run's.

    Args:
        last_step: the step from which the run is resumed; copies of later steps are renamed. None
            for a new run: all are.
    """
    if last_step is None:
        stale = [run / "intermediate"]
    else:
        stale = [path for step, path in intermediate_paths(run).items() if step > last_step]
    for path in filter(Path.exists, stale):
        path.rename(path.with_name(f"{path.name}.{int(path.stat().st_mtime)}"))


def file_name(name: str) -> str:
    """Returns a game's or an agent's name without characters that a file's name cannot have.

    >>> file_name("ALE/Pong-v5")
    'ALE-Pong-v5'
    """
    return name.replace("/", "-").replace(":", "-")


def replace_file(path: Path, data: bytes | memoryview) -> None:
    """Writes the whole file ``path``, or leaves what was there.

    Args:
        path: the file, in a directory that exists.

    Raises:
        OSError: it cannot be written, for example on a full disk.
    """
    # No other process writes a file of this name. A killed one may leave it:
    # remove_temporary() is for those of a run.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Some network file systems cannot.
            os.fsync(directory)
    finally:
        os.close(directory)


def remove_temporary(run: Path) -> None:
    """Removes the unfinished files of a run that was killed while it wrote them."""
    for directory in (run, run / "intermediate"):
        for path in directory.glob(f"*{TEMPORARY}"):
            path.unlink(missing_ok=True)
