import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_limits

from tests.processes import family, kill_family, wait_until
from torchbeast.runtime.workers import fork_context

ROOT = Path(__file__).parent.parent
# nohup and background jobs have these ignored, and what the tests start would inherit it.
for signum in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(signum) is signal.SIG_IGN:
        signal.signal(signum, signal.SIG_DFL)
# Small networks everywhere: more threads only wait for each other.
torch.set_num_threads(1)
threadpool_limits(1, user_api="blas")
# Whichever test starts the first child process, the fork server has what actors and evaluations
# import: else each of them would import torch anew.
fork_context("torchbeast.play.testing", "torchbeast.train.monobeast_process")


class Run:
    """A command of the program as a user starts it."""

    def __init__(self, module, *arguments, tmp, cwd=ROOT, env=None, **options):
        self.tmp = tmp
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"torchbeast.{module}", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "TMPDIR": str(tmp), "PYTHONPATH": str(ROOT), **(env or {})},
            **options,
        )

    def finish(self, timeout=400):
        """Waits for the end; returns exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def wait_until(self, condition, timeout=300):
        """Waits for something that the command does; fails if the command ends."""
        wait_until(lambda: self.process.poll() is not None or condition(), timeout)
        if self.process.poll() is not None:
            pytest.fail(self.finish()[2])

    def family(self):
        """The process and all its descendants."""
        return family(self.process)


@pytest.fixture
def assert_misuse(capsys):
    """Calls a command line that must refuse what it is given, in one line on standard error."""

    def check(main, arguments, message):
        try:
            code = main([*map(str, arguments)])
        except SystemExit as exit_:
            code = exit_.code
        captured = capsys.readouterr()
        assert code == 2
        assert message in captured.err
        assert captured.err.count("\n") == 1
        assert captured.err.rstrip("\n").isprintable()
        assert not captured.out

    return check


@pytest.fixture
def start(tmp_path_factory):
    """Starts a module's command line; kills what is left of it at the end."""
    runs = []

    def run(module, *arguments, **options):
        runs.append(Run(module, *arguments, tmp=tmp_path_factory.mktemp("tmp"), **options))
        return runs[-1]

    yield run
    for run_ in runs:
        kill_family(run_.process)
        run_.process.communicate()


def pytest_runtest_logreport(report):
    """Prints the name of a test that fails at once: a suite may be interrupted before its end."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when})", flush=True)
