"""The notebooks run from top to bottom, and are stored with small pictures of what they show."""

import nbformat
import pytest
from matplotlib import pyplot

from tests.conftest import ROOT

PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Nothing of what is shown is looked at.
SHORTER = {
    "NUM_STEPS, NUM_ENVS = 50, 2": "NUM_STEPS, NUM_ENVS = 2, 1",
    '"num_frames": 40': '"num_frames": 3',
    "NUM_FRAMES = 2": "NUM_FRAMES = 1",
    '("Atari57PopArt", "MultiTaskPopArt", "MultiTask", "Pong")': '("Pong",)',
    "density=6": "density=20",
    "dpi=65": "dpi=20",
}


def test_what_is_shortened_is_there():
    text = "".join(path.read_text().replace('\\"', '"') for path in PATHS)
    assert [whole for whole in SHORTER if whole not in text] == []


# As matplotlib calls torch; not raised in a kernel.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_runs_and_is_stored_with_its_pictures(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image" in name for output in outputs for name in output.get("data", {}))
    assert path.stat().st_size < 1_000_000
    lines = "\n".join(cell.source for cell in cells).splitlines()
    code = "\n".join(line for line in lines if not line.startswith("%"))
    for whole, short in SHORTER.items():
        code = code.replace(whole, short)
    exec(compile(code, path, "exec"), {})
    pyplot.close("all")
