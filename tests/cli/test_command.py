import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAM = """
import os, signal, sys, time
from torchbeast.cli.command import run_command
from torchbeast.core.types import RunError, UsageError

def send(signum):
    os.kill(os.getpid(), signum)

def work(signals):
{work}

sys.exit(run_command("test", work))
"""


def run(tmp_path, *lines):
    """Runs a command whose work is ``lines``; returns exit code and standard error."""
    work = "\n".join(f"    {line}" for line in lines)
    (tmp_path / "program.py").write_text(PROGRAM.format(work=work))
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    process = subprocess.run(
        [sys.executable, "-m", "program"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return process.returncode, process.stderr


def test_control_characters_in_errors_and_log_messages_are_escaped(tmp_path):
    _, err = run(
        tmp_path,
        "import logging",
        "logging.getLogger('torchbeast').warning('%s', 'a\\x1b[2J')",
        "raise UsageError('b\\x1b]0;c\\x07\\x9b')",
    )
    assert r"a\x1b[2J" in err
    assert r"b\x1b]0;c\x07\x9b" in err
    assert err.replace("\n", "").isprintable()


def test_a_full_disk_is_one_line(tmp_path):
    code, err = run(tmp_path, "with open('/dev/full', 'w') as file:", "    file.write('text')")
    assert (code, err) == (1, "test: error: No space left on device\n")


def test_a_failed_thread_of_a_library_is_one_line(tmp_path):
    code, err = run(
        tmp_path,
        "import threading",
        "thread = threading.Thread(target=open, args=('/missing',))",
        "thread.start()",
        "thread.join()",
    )
    assert code == 0
    assert err.startswith("A thread of a library failed: FileNotFoundError")
    assert err.count("\n") == 1


def test_a_command_for_this_python_is_named_where_the_working_directory_is_gone(tmp_path):
    code, err = run(
        tmp_path,
        "from torchbeast.runtime.text import python_command",
        f"os.environ['PATH'] = {str(tmp_path)!r}",
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
        "print(python_command(), file=sys.stderr)",
    )
    assert (code, err) == (0, f"{sys.executable}\n")


@pytest.mark.parametrize(
    "allocate", ["import torch; torch.empty(2**60, dtype=torch.uint8)", "bytearray(2**62)"]
)
def test_a_lack_of_memory_is_one_line_with_a_way_out(tmp_path, allocate):
    code, err = run(tmp_path, allocate)
    assert (code, err.count("\n")) == (1, 1)
    assert "out of memory; fewer environments, smaller batches" in err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_there_is_something_to_save_ends_the_process(tmp_path, signum):
    # Inside exec, where a KeyboardInterrupt would change Python's own exit status.
    assert run(tmp_path, f"exec('send({int(signum)})')", "time.sleep(30)") == (-signum, "")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_there_is_something_to_save_only_sets_a_flag(tmp_path, signum):
    code, err = run(
        tmp_path,
        "with signals:",
        f"    send({int(signum)})",
        f"    assert signals.received == {int(signum)}",
        "    print('saved', file=sys.stderr)",
    )
    assert code == 128 + signum
    assert err == "saved\n"


def test_signals_at_once_are_one_and_a_late_second_ctrl_c_ends_the_process(tmp_path):
    code, err = run(
        tmp_path,
        "with signals:",
        "    for _ in range(3): send(signal.SIGINT)",
        "    time.sleep(signals.REPEAT_S + 0.1)",
        "    send(signal.SIGTERM)",
        "    print('still here', file=sys.stderr)",
        "    send(signal.SIGINT)",
        "    print('not reached', file=sys.stderr)",
    )
    assert code == 130
    assert err == "still here\n"


def test_nohup_is_respected(tmp_path):
    code, _ = run(
        tmp_path,
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "with signals: send(signal.SIGHUP)",
    )
    assert code == 0


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("BrokenPipeError", ""),
        ("RunError('a server ended')", ""),
        ("UsageError('no such')", "Ended by SIGTERM; meanwhile: UsageError: no such\n"),
    ],
)
def test_only_what_does_not_fail_because_of_a_signal_is_reported(tmp_path, error, message):
    lines = ("with signals:", "    send(signal.SIGTERM)", f"    raise {error}")
    assert run(tmp_path, *lines) == (143, message)


def test_output_that_nobody_reads_any_more_ends_the_command_quietly(tmp_path):
    close_reader = "ends = os.pipe(); os.dup2(ends[1], 1); os.close(ends[0])"
    assert run(tmp_path, close_reader, "print('.')") == (128 + signal.SIGPIPE, "")


def test_a_thread_that_is_still_inside_torch_does_not_abort_the_process(tmp_path):
    code, err = run(
        tmp_path,
        "import torch",
        "from torchbeast.runtime.threads import Threads",
        "torch.set_num_threads(1)",
        "matrix = torch.ones(600, 600, requires_grad=True)",
        "def learn():",
        "    while True: (matrix @ matrix).sum().backward()",
        "threads = Threads()",
        "threads.start('learner', learn)",
        "threads.join(0.5)",
        "print('saved', file=sys.stderr)",
        "raise RunError('over')",
    )
    assert (code, err) == (1, "saved\ntest: error: over\n")


def test_a_python_without_the_packages_is_told_where_they_are():
    process = subprocess.run(
        [sys.executable, "-S", "-m", "torchbeast.polybeast", "--mode=test", "--xpid=Pong"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert process.returncode == 2
    assert "has no module torch; what make has installed" in process.stderr
    assert "Traceback" not in process.stderr
