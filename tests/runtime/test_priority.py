"""Priority, with real processes that begin real sessions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

has_sessions = pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="The kernel does not divide time by session"
)
IMPORT = "import os, subprocess, sys\nfrom torchbeast.runtime import priority\n"
REPORT = "\nprint(os.nice(0), priority.session_niceness(os.getpid()))"


def run(code, **options):
    """The niceness of a new process and of its session, after some code."""
    arguments = [sys.executable, "-c", IMPORT + code + REPORT]
    output = subprocess.check_output(arguments, text=True, **options)
    return tuple(map(int, output.split()[:2]))


@has_sessions
@pytest.mark.parametrize(("niceness", "expected"), [(3, 10), (15, 19)])
def test_a_new_session_follows_that_of_its_parent(niceness, expected):
    child = f"{IMPORT}priority.follow_session({niceness}){REPORT}"
    code = (
        "priority.set_session_niceness(os.getpid(), 7)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    )
    assert run(code, start_new_session=True) == (min(os.nice(0) + niceness, 19), expected)


def test_without_sessions_the_niceness_of_the_process_counts():
    code = "from pathlib import Path\npriority.Path = lambda _: Path('/nonexistent/file')\n"
    niceness, session = run(code + "priority.follow_session(3)", start_new_session=True)
    assert (niceness, session) == (min(os.nice(0) + 3, 19), 0)
