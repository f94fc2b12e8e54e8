import contextlib
import io
import os

import pytest

from torchbeast.records.display.lines import TABLE_INTERVAL_S, LineDisplay
from torchbeast.records.progress import Limit


@pytest.fixture
def stream():
    return io.StringIO()


def lines(stream):
    return stream.getvalue().splitlines()


def test_one_game_takes_a_line_per_report(stream, make_snapshot):
    display = LineDisplay(stream)
    display.report(make_snapshot(limit=Limit("learner", "try more --cores")))
    display.refresh(make_snapshot())
    display.close()
    assert lines(stream) == [
        "623,360 of 2,000,000 steps  1413 steps/s  16m14s left  Pong 17.5  "
        "bottleneck: learner; try more --cores"
    ]


def test_the_wait_for_the_first_batch_is_said_once(stream, make_snapshot):
    display = LineDisplay(stream)
    for _ in range(3):
        display.report(make_snapshot(steps=0, last=None))
    assert lines(stream) == ["0 of 2,000,000 steps  waiting for the first batch"]


def test_all_games_are_listed_once_a_minute_and_at_the_end(stream, make_snapshot, make_game):
    now = [0.0]
    display = LineDisplay(stream, lambda: now[0])
    snapshot = make_snapshot(make_game("Pong"), make_game("Breakout"))
    for _ in range(26):  # Two minutes and five seconds.
        now[0] += 5.0
        display.report(snapshot)
    display.close()
    display.close()
    said = lines(stream)
    assert sum("steps/s" in line for line in said) == 26
    for name in ("Pong", "Breakout"):
        tables = [i for i, line in enumerate(said) if line.split()[0] == name]
        assert len(tables) == 3
    assert said[12].split()[0] == "game"
    assert TABLE_INTERVAL_S == 12 * 5.0


def test_a_reader_that_went_away_does_not_end_the_run(make_snapshot):
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    LineDisplay(stream).report(make_snapshot())
    with contextlib.suppress(BrokenPipeError):
        stream.close()
