"""Stores what notebooks show: ``python tools/run_notebooks.py [NOTEBOOK ...]``."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs. Raises CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    # Kernels listen on TCP by default, in reach of everybody on the machine.
    with tempfile.TemporaryDirectory() as private:
        sockets = {"transport": "ipc", "ip": f"{private}/kernel"}
        client = NotebookClient(
            notebook,
            timeout=300,
            resources={"metadata": {"path": path.parent}},
            # When each cell ran would change the file every time.
            record_timing=False,
            config=Config({"AsyncKernelManager": sockets}),
        )
        # The kernel has its own way to show figures.
        environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
        return client.execute(env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "notebooks", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb"))
    )
    for path in parser.parse_args().notebooks:
        nbformat.write(run(path), path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
