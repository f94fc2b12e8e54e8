"""Progress of analyses, on a terminal and in a file."""

import io
import sys

from torchbeast.analysis import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def pass_items(monkeypatch, stream, seconds):
    """Tracks 20 items that take this time each; returns what is written to a stream."""
    now = 1000.0

    def items():
        nonlocal now
        for i in range(20):
            yield i
            now += seconds

    monkeypatch.setattr("tqdm.std.time", lambda: now)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress.track(items(), total=20, unit="frame")) == list(range(20))
    return stream.getvalue()


def test_a_terminal_shows_every_item(monkeypatch):
    text = pass_items(monkeypatch, Terminal(), 1)
    assert all(f"{i}/20" in text for i in range(1, 21))


def test_a_pipe_gets_an_update_every_half_a_minute(monkeypatch):
    text = pass_items(monkeypatch, io.StringIO(), 10)
    updates = [line for line in text.split("\r") if "/20" in line]
    assert 5 <= len(updates) <= 8
    assert "frame" in updates[0]


def test_a_pipe_gets_nothing_of_what_is_done_at_once(monkeypatch):
    assert pass_items(monkeypatch, io.StringIO(), 0.1) == ""
