"""States of unfinished runs in models/NAME/resume, from which another machine resumes.

A state is a run's directory: the whole checkpoint with its optimizer, the tables, and intermediate
checkpoints in their small form. While it is there, models/NAME may have an earlier agent.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from tools.shipped.checkpoints import slim
from tools.shipped.plan import MODELS, Run
from tools.shipped.records import SLICES, check_files
from torchbeast.core.types import UsageError
from torchbeast.records import checkpoint, run_files
from torchbeast.runtime.locks import is_locked

TABLES = ("logs.csv", "scores.csv", SLICES)


def save_state(run: Run, directory: Path, models: Path = MODELS) -> Path:
    """Copies a run's state into models/. An earlier state there is replaced.

    Args:
        run: the run.
        directory: of all runs.
        models: the shipped agents.

    Returns:
        The directory of the state.

    Raises:
        UsageError: the run has no checkpoint or no records, or it is being trained.
    """
    source, target = directory / run.name, _state_path(run, models)
    check_files(source)
    if is_locked(source):
        raise UsageError(f"{run.name} is being trained; stop that first")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".state-") as temporary:
        new = Path(temporary) / "resume"
        new.mkdir()
        for name in ("model.tar", *TABLES):
            if (source / name).exists():
                shutil.copy(source / name, new)
        for path in run_files.intermediate_paths(source).values():
            checkpoint.save(new / path.relative_to(source), slim(checkpoint.load(path)))
        meta = json.loads((source / "meta.json").read_text())
        meta["args"].pop("savedir", None)  # A path of this machine, which says nothing elsewhere.
        (new / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
        if target.exists():
            shutil.rmtree(target)
        new.rename(target)
    return target


def load_state(run: Run, directory: Path, models: Path = MODELS) -> bool:
    """Copies a run's state from models/ where the directory has no checkpoint of that run.

    Args:
        run: the run.
        directory: of all runs.
        models: the shipped agents.

    Returns:
        Whether a state was copied.
    """
    source, target = _state_path(run, models), directory / run.name
    if (target / "model.tar").exists() or not source.exists():
        return False
    # A copy that is interrupted must not look like a run.
    partial = directory / f".{run.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    shutil.rmtree(target, ignore_errors=True)  # A start that failed left its slices.csv, perhaps.
    partial.rename(target)
    return True


def _state_path(run: Run, models: Path) -> Path:
    return models / run.shipped_name / "resume"
