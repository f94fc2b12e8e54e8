"""The notebooks run from top to bottom, and are stored with small pictures of what they show."""

import nbformat
import pytest

from tools.run_notebooks import NOTEBOOKS, run

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def pictures(notebook):
    return [
        name
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        for name in output.get("data", {})
        if name.startswith("image/")
    ]


def test_there_are_four():
    assert [path.stem for path in PATHS] == ["action_analysis", "figures", "model", "movies"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_runs_and_shows_what_is_stored(path, monkeypatch):
    # Tests run side by side.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MPLBACKEND", "Agg")  # As a user may have it.
    stored = nbformat.read(path, as_version=4)
    assert pictures(stored)
    assert pictures(run(path)) == pictures(stored)
    assert path.stat().st_size < 1_000_000
