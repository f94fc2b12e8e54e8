"""A compiled module that does not belong to the Python sources is found before it is used."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import libtorchbeast

PACKAGE = Path(libtorchbeast.__file__).parent


@pytest.fixture
def run(tmp_path):
    """Runs Python with a copy of libtorchbeast whose stub has changed."""
    copy = tmp_path / "libtorchbeast"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("csrc", "proto", "__pycache__"))
    stub = copy / "_C.pyi"
    stub.write_text(stub.read_text() + "\ndef new_function() -> None: ...\n")

    def run_python(*arguments):
        command = [sys.executable, *arguments]
        environment = {"PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}", "HOME": str(tmp_path)}
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
        )

    return run_python


def test_polybeast_says_what_to_do(run):
    result = run("-m", "torchbeast.polybeast", "--env", "Mock", "--total_steps", "100")
    assert result.returncode == 2
    assert result.stderr == (
        "polybeast: error: PolyBeast's C++ part was built from other sources: "
        "run make build or pip install --editable .\n"
    )
