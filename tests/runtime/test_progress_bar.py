"""Progress of analyses, in a terminal and in a file."""

import io
import sys

from tests.terminal import Terminal
from torchbeast.runtime import progress_bar as progress


def test_a_terminal_shows_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    for i in progress.track(range(20), total=20, unit="frames"):
        if i == 10:
            print("a message", file=sys.stderr)
    said, bar = terminal.screen
    assert said == "a message"
    assert "20/20 frames" in bar
    terminal.close()


def test_a_pipe_gets_a_line_every_half_a_minute(monkeypatch):
    now, stream = 1000.0, io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(sys, "stderr", stream)
    for _ in progress.track(range(20), total=20, unit="frames"):
        now += 10
    lines = stream.getvalue().splitlines()
    assert lines[0] == "3 of 20 frames, 2m50s left"
    assert 5 <= len(lines) <= 8
