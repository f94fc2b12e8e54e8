"""Makes a run small enough to be given away: ``python tools/ship.py RUN models/NAME``.

Copies meta.json, logs.csv, scores.csv, model.tar and evenly spread intermediate checkpoints; of the
checkpoints only what is needed to play, with the weights in half precision. The last intermediate
checkpoint is a link if it has the content of model.tar. What the target has of these is replaced.
``python tools/model_card.py models/NAME`` then writes the card.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.shipped.checkpoints import slim
from tools.shipped.records import SLICES, check_files
from torchbeast.cli.command import run_command
from torchbeast.core.types import UsageError
from torchbeast.records import checkpoint, run_files
from torchbeast.records.tables import complete_lines
from torchbeast.runtime.locks import is_locked

# Files of a shipped agent: what an earlier one of that name had is removed.
REPLACED = (
    *("meta.json", "logs.csv", "scores.csv", SLICES, "model.tar", "intermediate", "resume"),
    *("evaluation.json", "README.md", "curve.png", "frame.png"),
)
# A run of 100 hours has 70,000 rows, of which a curve shows a thousand.
MAX_ROWS = 1000
DEFAULT_INTERMEDIATE = 5


def choose_steps(steps: Sequence[int], count: int) -> list[int]:
    """Chooses the steps that are closest to equal parts of the last one, which is among them.

    >>> choose_steps([100, 200, 300, 400, 500, 600, 700, 800, 900, 1000], 5)
    [200, 400, 600, 800, 1000]
    """
    if not steps or count < 1:
        return []
    wanted = [max(steps) * (i + 1) / count for i in range(count)]
    return sorted({min(steps, key=lambda step: abs(step - x)) for x in wanted})


def copy_table(source: Path, target: Path) -> None:
    """Copies a CSV with a header and at most ``MAX_ROWS`` of its rows, the last one among them."""
    header, *rows = complete_lines(source.read_text())
    count = min(len(rows), MAX_ROWS)
    chosen = [rows[(i + 1) * len(rows) // count - 1] for i in range(count)]
    target.write_text("\n".join([header, *chosen]) + "\n")


def ship(run: Path, target: Path, intermediate: int = DEFAULT_INTERMEDIATE) -> str:
    """Copies a run in its small form.

    Args:
        run: the run's directory.
        target: the directory to make, such as models/NAME; an earlier agent there is replaced.
        intermediate: how many intermediate checkpoints to copy.

    Returns:
        A line that says what was copied.

    Raises:
        UsageError: the run has no checkpoint or no records, or it is being trained.
    """
    check_files(run)
    if is_locked(run):
        raise UsageError(f"{run} is being trained; stop that first")
    target.parent.mkdir(parents=True, exist_ok=True)
    # The old agent stays until the new one is complete.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".ship-") as temporary:
        new = Path(temporary)
        count = _write(run, new, target.name, intermediate)
        for name in REPLACED:
            old = target / name
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
        target.mkdir(exist_ok=True)
        for path in new.iterdir():
            path.rename(target / path.name)
    size = sum(p.lstat().st_size for p in target.rglob("*.tar"))
    return f"{target}: {count + 1} checkpoints, {size / 1e6:.0f} MB"


def _write(run: Path, target: Path, name: str, intermediate: int) -> int:
    """Writes the small form of a run; returns the number of intermediate checkpoints."""
    paths = run_files.intermediate_paths(run)
    chosen = [paths[step] for step in choose_steps(list(paths), intermediate)]
    final = target / "model.tar"
    for path in [run / "model.tar", *chosen]:
        copy = target / path.relative_to(run)
        checkpoint.save(copy, slim(checkpoint.load(path)))
        if copy != final and filecmp.cmp(copy, final, shallow=False):
            copy.unlink()
            copy.symlink_to(Path("..") / final.name)
    copy_table(run / "logs.csv", target / "logs.csv")
    for table in ("scores.csv", SLICES):
        if (run / table).exists():
            shutil.copy(run / table, target)
    meta = json.loads((run / "meta.json").read_text())
    meta["args"].pop("savedir", None)  # A path of this machine, which says nothing elsewhere.
    meta["xpid"] = meta["args"]["xpid"] = name
    (target / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    return len(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument(
        "--intermediate",
        type=int,
        default=DEFAULT_INTERMEDIATE,
        help="How many (default: %(default)s).",
    )
    flags = parser.parse_args()

    def work(_: object) -> None:
        target = flags.target.absolute()
        print(ship(flags.run, target, flags.intermediate))

    return run_command("ship", work)


if __name__ == "__main__":
    sys.exit(main())
