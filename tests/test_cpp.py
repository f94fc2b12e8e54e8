"""The C++ tests, in parts that run side by side with Python's."""

import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "cpp" / "build" / "plain" / "tests"
NUM_PARTS = 8


@pytest.mark.skipif(not PROGRAM.exists(), reason="not compiled: `make test` compiles them")
@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_cpp(part):
    variables = {"GTEST_TOTAL_SHARDS": str(NUM_PARTS), "GTEST_SHARD_INDEX": str(part)}
    result = subprocess.run(
        [PROGRAM, "--gtest_brief=1"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[  PASSED  ]" in result.stdout
