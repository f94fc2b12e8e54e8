"""Progress of analyses, in a terminal and in a file."""

import io
import sys

from tests.terminal import Terminal
from torchbeast.runtime import progress_bar as progress


def pass_items(monkeypatch, stream, seconds):
    """Tracks 20 items that take this time each."""
    now = 1000.0

    def items():
        nonlocal now
        for i in range(20):
            yield i
            now += seconds

    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress.track(items(), total=20, unit="frames")) == list(range(20))


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
    stream = io.StringIO()
    pass_items(monkeypatch, stream, 10)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "3 of 20 frames, 2m50s left"
    assert 5 <= len(lines) <= 8
