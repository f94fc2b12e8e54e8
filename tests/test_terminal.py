"""A run in a terminal, as its user sees it."""

import fcntl
import subprocess
import sys
import termios
import time

import pytest

from tests.conftest import ROOT
from tests.terminal import Terminal


@pytest.fixture
def terminal():
    terminal = Terminal(80, 24)
    yield terminal
    terminal.close()


@pytest.fixture
def process(terminal, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    process = subprocess.Popen(
        [
            sys.executable, "-m", "torchbeast.polybeast", "--agent_type=atari",
            "--unroll_length=10", "--batch_size=2", "--num_actors=3",
            "--env=Pong,Breakout", "--use_popart", "--fixed_input_scale",
            "--unit_statistics", f"--savedir={tmp_path}", "--xpid=run", "--total_steps=1e9",
        ],
        stdin=terminal.stream,
        stdout=terminal.stream,
        stderr=terminal.stream,
        cwd=ROOT,
        start_new_session=True,
        # Ctrl-C is for the processes of the session that has the terminal.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()


def test_ctrl_c_in_a_terminal_saves_and_keeps_the_last_block(terminal, process, tmp_path):
    def wait_for(condition):
        while not condition():
            assert process.poll() is None, terminal.text
            time.sleep(0.1)

    wait_for(lambda: any("steps/s" in line for line in terminal.screen))
    assert any("Unequal numbers of environments per game: Pong 2, Breakout 1" in line
               for line in terminal.text)  # fmt: skip
    assert any(line.split()[:3] == ["game", "steps", "share"] for line in terminal.screen)
    assert [line.split()[0] for line in terminal.screen if line[:4] in ("Pong", "Brea")] == [
        "Pong",
        "Breakout",
    ]
    wait_for(lambda: (tmp_path / "run" / "logs.csv").read_text().count("\n") > 1)
    terminal.press("\x03")
    assert process.wait(60) == 130
    text = terminal.text
    (announced,) = (i for i, line in enumerate(text) if line.startswith("Ctrl-C: saving the run"))
    (block,) = (i for i, line in enumerate(text) if "steps/s" in line)
    assert announced < block
    last = "".join(line.ljust(80) for line in text[block + 1 :])
    assert f"Saved {tmp_path}/run/model.tar at step" in last
    assert "To resume, run the same command with --xpid run" in " ".join(last.split())
