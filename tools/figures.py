"""Makes figures, films, tables, cards and notebooks anew: ``make figures ARGS="[NAME ...]"``.

``tools/figure_table.py`` lists them. ``tools/figures.json`` records of each one the digests of the
files that it shows, of the commands and of the stored files. ``tests/test_figures.py`` compares
these digests with the files, so it fails when a figure is older than what it shows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageSequence

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.figure_table import FIGURES, Figure

ROOT = Path(__file__).parent.parent
RECORDS = Path("tools") / "figures.json"
# Grey levels by which 999 of 1000 pixels of a picture may change when its colours are reduced.
MAX_CHANGE = 24


def digest(contents: bytes) -> str:
    """The first 16 hexadecimal digits of a SHA-256."""
    return hashlib.sha256(contents).hexdigest()[:16]


def digest_files(root: Path, names: Iterable[str]) -> dict[str, str]:
    """The digest of each file that exists, by its path relative to ``root``."""
    return {n: digest((root / n).read_bytes()) for n in names if (root / n).is_file()}


def find_inputs(figure: Figure, root: Path) -> list[str]:
    """The files that a figure shows, relative to ``root``. Raises FileNotFoundError."""
    found: set[str] = set()
    for pattern in figure.inputs:
        paths = [p for p in root.glob(pattern) if p.is_file()]
        if not paths:
            raise FileNotFoundError(f"{figure.name}: no file matches {pattern}")
        found.update(p.relative_to(root).as_posix() for p in paths)
    return sorted(found)


def find_table(page: str, name: str) -> re.Match[str]:
    """Finds a table in the text of a page: a match whose second group is the table.

    Raises ValueError unless the page has one place for it.
    """
    pattern = rf"(^<!-- table {re.escape(name)} -->\n)(.*?)(^<!-- end -->$)"
    found = list(re.finditer(pattern, page, re.MULTILINE | re.DOTALL))
    if len(found) != 1:
        raise ValueError(f"the page has {len(found)} places for a table {name}, not one")
    return found[0]


def read_tables(figure: Figure, root: Path) -> dict[str, str]:
    """The tables of a figure as its page has them, by name. Raises ValueError."""
    page = (root / figure.page).read_text() if figure.page and figure.tables else ""
    return {name: find_table(page, name).group(2) for name in figure.tables}


def store_table(page: Path, name: str, table: str) -> None:
    """Puts a table into a page. Raises ValueError."""
    text = page.read_text()
    found = find_table(text, name)
    page.write_text(f"{text[: found.start(2)]}\n{table.strip()}\n\n{text[found.end(2) :]}")


def make_record(figure: Figure, root: Path) -> dict[str, Any]:
    """What is recorded of a figure: digests of its commands, inputs, stored files and tables.

    Raises FileNotFoundError or ValueError.
    """
    tables = {name: digest(text.encode()) for name, text in read_tables(figure, root).items()}
    return {
        "commands": digest("\n".join(figure.commands).encode()),
        "inputs": digest_files(root, find_inputs(figure, root)),
        "outputs": digest_files(root, sorted(figure.outputs)),
        **({"tables": tables} if tables else {}),
    }


def find_problems(figure: Figure, record: dict[str, Any] | None, root: Path) -> list[str]:
    """What a figure's record says about the present files, a sentence per problem.

    Args:
        figure: from the table.
        record: from :func:`read_records`; None if there is none.
        root: the checkout.

    Returns:
        An empty list if the stored files show the present inputs.
    """
    if record is None:
        return [f"make figures has not made {figure.name} yet"]
    try:
        now = make_record(figure, root)
    except (FileNotFoundError, ValueError) as error:
        return [str(error)]
    named = [f"the table {name} of {figure.page}" for name in sorted(figure.tables)]
    stored = " and ".join([*sorted(figure.outputs), *named])
    problems = []
    if now["commands"] != record["commands"]:
        problems.append(f"{stored}: the commands have changed since")
    for name in sorted(now["inputs"].keys() | record["inputs"].keys()):
        if now["inputs"].get(name) != record["inputs"].get(name):
            problems.append(f"{stored}: older than {name}")
    for name in sorted(figure.outputs):
        if now["outputs"].get(name) is None:
            problems.append(f"{name} does not exist")
        elif now["outputs"][name] != record["outputs"].get(name):
            problems.append(f"{name} is not the file that make figures wrote")
    known = record.get("tables", {})
    for name, table in now.get("tables", {}).items():
        if table != known.get(name):
            problems.append(f"the table {name} of {figure.page} is not what make figures wrote")
    return problems


def read_records(root: Path) -> dict[str, Any]:
    """The records of all figures, by name."""
    path = root / RECORDS
    records: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return records


def write_record(figure: Figure, root: Path, inputs: dict[str, str] | None = None) -> None:
    """Records what a figure shows.

    Args:
        figure: from the table.
        root: the checkout.
        inputs: digests of the files that it was made from; None: the present ones.
    """
    record = make_record(figure, root)
    if inputs is not None:
        record["inputs"] = inputs
    path = root / RECORDS
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".json.tmp")
    records = {**read_records(root), figure.name: record}
    temporary.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
    temporary.replace(path)


def prepare(figure: Figure, root: Path, directory: Path) -> None:
    """Fills a new directory with copies of what a figure's commands may read."""
    directory.mkdir(parents=True)
    (directory / "tools").symlink_to((root / "tools").resolve())
    for name in [*find_inputs(figure, root), *figure.sources]:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, directory / name)
    for made in (*figure.outputs.values(), *figure.tables.values()):
        (directory / made).parent.mkdir(parents=True, exist_ok=True)


def run_commands(figure: Figure, directory: Path) -> None:
    """Runs a figure's commands in a directory. Raises CalledProcessError if one fails."""
    # No command opens a window.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        environment.pop(name, None)
    for command in figure.commands:
        print(f"$ {command}", flush=True)
        words = shlex.split(command)
        if words[0] == "python":
            words[0] = sys.executable
        subprocess.run(words, cwd=directory, env=environment, check=True)


def shrink(picture: Image.Image) -> Image.Image:
    """Reduces an RGB picture to 256 colours, which makes it a third as large.

    A picture whose look that would change, such as one with fine shades, is returned as it is.
    """
    small = picture.quantize(256, dither=Image.Dither.NONE)
    pair = [np.asarray(p.convert("RGB")).astype(int) for p in (picture, small)]
    change = np.abs(pair[0] - pair[1]).max(axis=-1)
    return small if np.quantile(change, 0.999) <= MAX_CHANGE else picture


def read_film(path: Path) -> list[tuple[bytes, int]] | None:
    """The pictures of a GIF in RGB, each with its duration in milliseconds; None if there is no
    such film, or it is damaged.
    """
    try:
        with Image.open(path) as film:
            return [
                (picture.convert("RGB").tobytes(), picture.info.get("duration", 0))
                for picture in ImageSequence.Iterator(film)
            ]
    except Exception:  # Pillow raises half a dozen kinds for damaged files.
        return None


def store(made: Path, stored: Path) -> None:
    """Stores a file that a command made; pictures with fewer colours, see :func:`shrink`.

    A stored picture or film that looks exactly the same stays as it is.
    """
    stored.parent.mkdir(parents=True, exist_ok=True)
    if made.suffix == ".gif" and (film := read_film(made)) and film == read_film(stored):
        return
    if made.suffix != ".png":
        shutil.copy(made, stored)
        return
    picture = Image.open(made).convert("RGB")
    small = shrink(picture)
    if stored.exists():
        pixels = Image.open(stored).convert("RGB").tobytes()
        if pixels in (picture.tobytes(), small.convert("RGB").tobytes()):
            return
    small.save(stored, optimize=True)


def reproduce(figure: Figure, root: Path, directory: Path) -> None:
    """Makes a figure's files anew and records what they show.

    Args:
        figure: from the table.
        root: the checkout, whose files it shows.
        directory: does not exist yet; the commands run there.

    Raises:
        CalledProcessError: a command fails. The stored files are as they were.
        FileNotFoundError: an input or an output does not exist.
        ValueError: the page has no place for a table.
    """
    prepare(figure, root, directory)
    # Of the copies, before a command can change them: the checkout may change meanwhile.
    inputs = digest_files(directory, find_inputs(figure, root))
    run_commands(figure, directory)
    for stored, made in figure.outputs.items():
        store(directory / made, root / stored)
    for name, made in figure.tables.items():
        assert figure.page is not None
        store_table(root / figure.page, name, (directory / made).read_text())
    write_record(figure, root, inputs)


def choose(names: list[str], page: str | None, only_stale: bool) -> list[Figure]:
    """The figures with these names, or all; of them those of a page, or those that are older than
    what they show.
    """
    figures = [figure for figure in FIGURES if not names or figure.name in names]
    if page is not None:
        figures = [figure for figure in figures if figure.page == page]
    records = read_records(ROOT)
    if only_stale:
        figures = [f for f in figures if find_problems(f, records.get(f.name), ROOT)]
    return figures


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    names = [figure.name for figure in FIGURES]
    pages = sorted({figure.page for figure in FIGURES if figure.page})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names)}"
    )
    parser.add_argument(
        "--page", choices=pages, metavar="PAGE", help="only figures of this page, docs/NAME.md"
    )
    parser.add_argument(
        "--stale", action="store_true", help="only figures that are older than what they show"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="new directory for all that the commands write, tables of numbers too",
    )
    flags = parser.parse_args(argv)
    unknown = sorted(set(flags.names) - set(names))
    if unknown:
        parser.error(f"no figure is called {', '.join(unknown)}; there are {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="figures-") as temporary:
        directory = (flags.keep or Path(temporary)).resolve()
        return make_figures(choose(flags.names, flags.page, flags.stale), directory)


def make_figures(figures: list[Figure], directory: Path) -> int:
    """Makes figures anew, each in a directory below ``directory``. Returns the exit code.

    A figure that fails is named and left as it was; the others are made.
    """
    failed = []
    for figure in figures:
        start = time.monotonic()
        try:
            reproduce(figure, ROOT, directory / figure.name)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            print(f"{figure.name}: {error}", file=sys.stderr)
            failed.append(figure.name)
        else:
            print(f"{figure.name}: {time.monotonic() - start:.0f} s\n", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
