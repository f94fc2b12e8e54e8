import io
import logging
import sys

import pytest
from rich.console import Console

from tests.terminal import Terminal
from torchbeast.envs import all_games
from torchbeast.envs.games import SIX, short_name
from torchbeast.records.display import (
    TABLE_INTERVAL_S,
    BlockDisplay,
    LineDisplay,
    make_block,
    make_display,
    most_interesting,
    run_parts,
)

GAMES = {6: SIX, 62: all_games()[:62]}


def test_the_line_of_progress_tells_scores_and_what_holds_the_run_back(make_game, make_snapshot):
    evaluation = {"evaluation_step": 2000, "median_evaluated_human": 0.3}
    games = [make_game(human=0.1), make_game(human=0.3)]
    snapshot = make_snapshot(*games, stalled_s=90.0, bottleneck="learner", **evaluation)
    assert run_parts(snapshot) == [
        "623,360 of 2,000,000 steps",
        "1413 steps/s",
        "16m14s left",
        "no steps for 1m30s",
        "median 20 % of human",
        "evaluated at 2.00k steps: median 30 % of human",
        "bottleneck: learner",
    ]


def test_the_games_that_change_most_are_shown_in_their_order(make_game):
    trends = [0.0, -3.0, 1.0, None, 5.0]
    games = [make_game(str(i), trend=trend, std_return=1.0) for i, trend in enumerate(trends)]
    games.append(make_game("noisy", trend=40.0, std_return=100.0))
    assert [game.name for game in most_interesting(games, 3)] == ["1", "2", "4"]


@pytest.fixture
def terminal():
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def make_run(make_game, make_snapshot):
    """A run of so many games, with all that is known of games."""

    def make(number):
        names = map(short_name, GAMES[number])
        games = (make_game(n, human=0.05, trend=1.25, mu=12.345, sigma=25.1) for n in names)
        return make_snapshot(*games, bottleneck="learner")

    return make


def draw(snapshot, width, height):
    console = Console(file=io.StringIO(), width=500, soft_wrap=True)
    console.print(make_block(snapshot, width, height))
    return console.file.getvalue().splitlines()


def block_of(text):
    """The lines of the last block, and those above it."""
    start = max(i for i, line in enumerate(text) if line.startswith("game "))
    assert text[start - 1] == ""
    return text[start:], text[: start - 1]


def test_what_python_says_scrolls_above_the_block(terminal, make_run, monkeypatch, request):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    request.addfinalizer(lambda: logging.getLogger().removeHandler(handler))
    display = make_display()
    display.show(make_run(6))
    block, _ = block_of(terminal.text)
    for i in range(20):
        print("result", i)
    print("first half,", end="")
    print(" second half")
    logging.getLogger("torchbeast").error("Traceback\n  a\nError")
    said = [*(f"result {i}" for i in range(20)), "first half, second half"]
    below, above = block_of(terminal.text)
    assert below == block
    assert above == [*said, "Traceback", "  a", "Error"]
    print("no end", end="")
    display.close()
    assert sys.stdout is sys.stderr is terminal.stream
    print("after")
    below, above = block_of(terminal.text)
    assert above[-1] == "no end"
    assert below == [*block, "after"]
    display.close()
    assert block_of(terminal.text)[0] == below


@pytest.mark.parametrize("size", [(120, 40), (5, 2)])
def test_the_block_follows_the_size_of_the_terminal(terminal, make_run, size):
    display = BlockDisplay(terminal.stream)
    display.show(make_run(62))
    terminal.resize(*size)
    for _ in range(2):
        display.show(make_run(62))
        assert sum(line.startswith("game ") for line in terminal.screen) <= 1
        assert sum("623,360" in line for line in terminal.screen) <= 1
        last = terminal.screen[-1]
        assert last == draw(make_run(62), size[0] - 1, max(1, size[1] - 3))[-1][: size[0] - 1]


def test_a_terminal_that_is_gone_does_not_end_the_run(terminal, make_snapshot):
    display = BlockDisplay(terminal.stream)
    display.show(make_snapshot())
    terminal.stream.close()
    display.show(make_snapshot())
    display.close()


def test_files_and_dumb_terminals_get_plain_lines(terminal, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with open(tmp_path / "out", "w") as file:
        assert isinstance(make_display(file), LineDisplay)
    for term in ("dumb", ""):
        monkeypatch.setenv("TERM", term)
        assert isinstance(make_display(terminal.stream), LineDisplay)


def test_all_games_are_listed_once_a_minute_and_at_the_end(make_run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream, now = io.StringIO(), [0.0]
    display = LineDisplay(stream, lambda: now[0])
    for _ in range(26):  # Two minutes and five seconds.
        now[0] += TABLE_INTERVAL_S / 12
        display.show(make_run(62))
    display.close()
    display.close()
    said = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert sum("steps/s" in line for line in said) == 26
    assert said[12].split()[0] == "game"
    for name in map(short_name, GAMES[62]):
        assert sum(line.split()[0] == name for line in said) == 3
