import os
import subprocess
import sys
from pathlib import Path

WORK = """
import os, signal, sys, time
from torchbeast.core.command import run_command

def work(_):
    exec("os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)")  # As an import may.

sys.exit(run_command("test", work))
"""


def test_a_signal_inside_executed_text_gives_its_own_exit_code(tmp_path):
    (tmp_path / "work.py").write_text(WORK)
    # As a module: CPython's own exit code wins only there.
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    process = subprocess.run(
        [sys.executable, "-m", "work"],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        timeout=60,
    )
    assert process.returncode == 143
