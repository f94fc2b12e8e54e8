"""Trains the agents of models/models.toml, one after the other: ``make models``.

    make models                    # trains all, and puts each that is done into models/
    make models ARGS="Pong"        # trains the one that is named

Ctrl-C stops and saves; the same command resumes. Finished agents are not trained again.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.model_card import write_card
from torchbeast.analysis.filter_comp import spread
from torchbeast.analysis.filters import only_filters
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import directory
from torchbeast.core.types import RunError, UsageError
from torchbeast.records import checkpoint, run_files
from torchbeast.records.csv_tables import complete_lines
from torchbeast.runtime.signals import StopSignals

MODELS = Path(__file__).resolve().parent.parent / "models"
DEFAULT_DIRECTORY = "~/.local/share/torchbeast/models"
MAX_ROWS = 250  # Rows of logs.csv: as many as a curve shows.
MAX_CELLS = 18_000  # Cells of logs.csv, for agents of many games.
MAX_COPIES = 3  # Copies of the filters, from within training.
# What a checkpoint has for resuming a run, and playing does not need.
LEFT_OUT = {"optimizer_state_dict", "progress", "random_state", "seed", "skipped_updates"}


def train(entry: dict[str, Any], flags: list[str], runs: Path) -> Path:
    """Trains an agent of models.toml, or resumes it. Returns the run's directory."""
    run = runs / entry["name"]
    command = [
        *(sys.executable, "-m", "torchbeast.polybeast", *flags, *shlex.split(entry["flags"])),
        *("--savedir", str(runs), "--xpid", entry["name"]),
    ]
    print(shlex.join(command), flush=True)
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise RunError(f"{entry['name']}: its training ended with exit code {code}")
    return run


def slim(contents: dict[str, Any]) -> dict[str, Any]:
    """Returns the agent of a checkpoint alone, weights and mean pictures in float16.

    Biases and PopArt's statistics are exact.
    """
    state = {
        name: value.half() if value.is_floating_point() and value.dim() > 1 else value
        for name, value in contents["model_state_dict"].items()
    }
    kept = {name: value for name, value in contents.items() if name not in LEFT_OUT}
    return {**kept, "model_state_dict": state}


def slim_copy(contents: dict[str, Any]) -> dict[str, Any]:
    """Returns the filters of a checkpoint alone: what analyze_resnet reads, a tenth of the size."""
    small = slim(contents)
    return {**small, "model_state_dict": only_filters(small["model_state_dict"])}


def round_numbers(row: str) -> str:
    """Rounds the fractions in a row of logs.csv to six digits, which halves the file.

    >>> round_numbers("1095440,4679.0,-0.5926294326782227,learner,0.0003174133333333333")
    '1095440,4679,-0.592629,learner,0.000317413'
    """
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.6g}", row)


def ship(run: Path, target: Path) -> None:
    """Copies a run into models/ in its small form, in the place of what was there."""
    contents = checkpoint.load(run / "model.tar")
    # Those of the agent before; notes.md stays.
    shutil.rmtree(target / "intermediate", ignore_errors=True)
    for name in ("evaluation.json", "scores.csv"):
        (target / name).unlink(missing_ok=True)
    checkpoint.save(target / "model.tar", slim(contents))
    if contents["agent"]["agent_type"] == "resnet":
        copies = run_files.intermediate_paths(run)
        earlier = [step for step in copies if step < contents["steps"]]
        for step in spread(earlier, MAX_COPIES):
            copy = run_files.model_path(target, step)
            checkpoint.save(copy, slim_copy(checkpoint.load(copies[step])))
    header, *rows = complete_lines((run / "logs.csv").read_text())
    count = min(len(rows), MAX_ROWS, MAX_CELLS // len(header.split(",")))
    chosen = [rows[(i + 1) * len(rows) // count - 1] for i in range(count)]
    (target / "logs.csv").write_text("\n".join([header, *map(round_numbers, chosen)]) + "\n")
    meta = json.loads((run / "meta.json").read_text())
    meta["args"].pop("savedir", None)  # A path of this machine, which says nothing elsewhere.
    (target / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


def read_plan(names: list[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the flags of all agents and the entries of those that are named, of all for none.

    Raises:
        UsageError: there is no agent of a name.
    """
    if sys.version_info < (3, 11):
        raise UsageError("Reading models.toml needs Python 3.11 or newer (module tomllib)")
    import tomllib

    plan = tomllib.loads((MODELS / "models.toml").read_text())
    entries = {entry["name"]: entry for entry in plan["agent"]}
    for name in names:
        if name not in entries:
            raise UsageError(f"There is no agent {name}; there are {', '.join(entries)}")
    return shlex.split(plan["flags"]), [entries[name] for name in names or entries]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help="agents (default: all)")
    parser.add_argument(
        "--directory",
        type=directory,
        default=DEFAULT_DIRECTORY,
        help="where the runs are, outside the work tree (default: %(default)s)",
    )
    flags = parser.parse_args()

    def work(signals: StopSignals) -> None:
        shared, entries = read_plan(flags.names)
        runs = Path(flags.directory)
        with signals:  # A signal is also the trainer's, which saves: wait for it.
            for entry in entries:
                shipped = runs / entry["name"] / "shipped"
                if shipped.exists() or signals.received is not None:
                    continue
                run = train(entry, shared, runs)
                ship(run, MODELS / entry["name"])
                print(write_card(MODELS / entry["name"]))
                shipped.touch()

    return run_command("train_models", work)


if __name__ == "__main__":
    sys.exit(main())
