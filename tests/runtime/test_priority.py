"""Priority, with real processes that begin real sessions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchbeast.runtime import priority

has_sessions = pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="The kernel does not divide time by session"
)
REPORT = "import os; print(os.nice(0), priority.session_niceness(os.getpid()))"


def run(code, **options):
    """The niceness of a new process and of its session, after some code."""
    code = f"from torchbeast.runtime import priority\n{code}\n{REPORT}"
    output = subprocess.check_output([sys.executable, "-c", code], text=True, **options)
    return tuple(map(int, output.splitlines()[-1].split()))


@has_sessions
def test_a_new_session_follows_the_priority_of_its_parents():
    child = "from torchbeast.runtime import priority\npriority.follow_parent()\n" + REPORT
    code = (
        "import subprocess, sys, os\n"
        "priority.lower_session(os.getpid(), 7)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    )
    arguments = [sys.executable, "-c", f"from torchbeast.runtime import priority\n{code}"]
    output = subprocess.check_output(arguments, text=True, start_new_session=True)
    assert output.split()[1] == "7"


@has_sessions
def test_a_process_in_its_parents_session_leaves_the_session_alone():
    before = priority.session_niceness(os.getpid())
    assert run("priority.follow_parent()")[1] == before


@has_sessions
def test_a_session_is_lowered_twice_in_succession():
    niceness, session = run("priority.lower(2)\npriority.lower(3)", start_new_session=True)
    assert niceness == min(os.nice(0) + 5, 19)
    assert session == 5


@has_sessions
def test_nothing_is_lower_than_the_lowest():
    assert run("priority.lower(15)\npriority.lower(15)", start_new_session=True) == (19, 19)


def test_without_sessions_the_niceness_of_the_process_counts():
    code = "from pathlib import Path\npriority.Path = lambda _: Path('/nonexistent/file')\n"
    niceness, session = run(code + "priority.lower(3)", start_new_session=True)
    assert (niceness, session) == (min(os.nice(0) + 3, 19), 0)
