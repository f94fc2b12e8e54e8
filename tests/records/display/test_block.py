import logging
import sys

import pytest

from torchbeast.envs import all_games
from torchbeast.envs.games import SIX, short_name
from torchbeast.records.display import BlockDisplay, LineDisplay, make_display
from torchbeast.records.display.table import block_lines


@pytest.fixture
def make_games(make_game):
    def make(number):
        ids = {1: SIX[:1], 6: SIX, 62: all_games()[:62]}[number]
        return tuple(make_game(short_name(i), mu=0.5, sigma=25.1) for i in ids)

    return make


@pytest.fixture
def python_output(monkeypatch):
    """Lets Python's output go to a terminal, as in a program that was started there."""
    handlers = []
    monkeypatch.setenv("TERM", "xterm")

    def connect(terminal):
        monkeypatch.setattr(sys, "stdout", terminal.stream)
        monkeypatch.setattr(sys, "stderr", terminal.stream)
        handlers.append(logging.StreamHandler())
        logging.getLogger().addHandler(handlers[-1])

    yield connect
    for handler in handlers:
        logging.getLogger().removeHandler(handler)


@pytest.fixture
def show_block(make_terminal, make_games, make_snapshot, python_output):
    """Shows a block of six games in a terminal where Python's output scrolls above it."""

    def show():
        terminal = make_terminal()
        python_output(terminal)
        display = make_display()
        snapshot = make_snapshot(*make_games(6))
        display.refresh(snapshot)
        return terminal, display, snapshot

    return show


@pytest.mark.parametrize("number", [1, 6, 62])
def test_the_block_is_redrawn_in_place(make_terminal, make_games, make_snapshot, number):
    terminal = make_terminal()
    terminal.stream.write("$ make train\n")
    display = BlockDisplay(terminal.stream)
    games = make_games(number)
    for step in (1000, 2000, 3000):
        snapshot = make_snapshot(*games, steps=step)
        display.refresh(snapshot)
        assert terminal.screen == ["$ make train", "", *block_lines(snapshot, 79, 21)]
    assert sum("steps/s" in line for line in terminal.text) == 1
    assert any("and 44 more games" in line for line in terminal.text) == (number == 62)


def test_fewer_lines_leave_nothing_of_those_before(make_terminal, make_games, make_snapshot):
    terminal = make_terminal()
    display = BlockDisplay(terminal.stream)
    display.refresh(make_snapshot(*make_games(6)))
    last = make_snapshot(*make_games(1))
    display.refresh(last)
    assert terminal.screen == ["", *block_lines(last, 79, 21)]


def test_what_python_says_scrolls_above_the_block(show_block):
    terminal, display, snapshot = show_block()
    said = []
    for i in range(20):
        logging.getLogger("torchbeast").warning("warning %d", i)
        print("result", i)
        said += [f"warning {i}", f"result {i}"]
    print("first half,", end="")
    print(" second half")
    said.append("first half, second half")
    assert terminal.text == [*said, "", *block_lines(snapshot, 79, 21)]
    print("no end", end="")
    display.close()
    assert sys.stdout is sys.stderr is terminal.stream
    print("after")
    text = terminal.text
    assert text[: len(said) + 1] == [*said, "no end"]
    assert text[-1] == "after"
    assert text[-2] == block_lines(snapshot, 79, 21)[-1]
    display.close()
    assert terminal.text == text


def test_a_message_of_many_lines_scrolls_above_the_block(show_block):
    terminal, display, snapshot = show_block()
    logging.getLogger("torchbeast").error("Traceback\n  a\n  b\nError")
    said = ["Traceback", "  a", "  b", "Error"]
    assert terminal.text == [*said, "", *block_lines(snapshot, 79, 21)]
    display.close()


def test_a_line_of_another_process_is_kept(make_terminal, make_games, make_snapshot):
    terminal = make_terminal()
    display = BlockDisplay(terminal.stream)
    snapshot = make_snapshot(*make_games(6))
    for i in range(40):
        display.refresh(snapshot)
        terminal.write_directly(f"server {i} ended; restarting it\n")
    display.refresh(snapshot)
    said = [f"server {i} ended; restarting it" for i in range(40)]
    assert terminal.text == [*said, "", *block_lines(snapshot, 79, 21)]


def test_keys_of_the_user_do_not_move_the_block_over_other_lines(
    make_terminal, make_games, make_snapshot
):
    terminal = make_terminal()
    terminal.stream.write("$ make train\n")
    display = BlockDisplay(terminal.stream)
    snapshot = make_snapshot(*make_games(1))
    display.refresh(snapshot)
    terminal.write_directly("\n^C")  # What a terminal echoes.
    display.refresh(snapshot)
    block = block_lines(snapshot, 79, 21)
    assert terminal.screen == ["$ make train", "", "", *block]


@pytest.mark.parametrize("size", [(40, 24), (80, 10), (120, 40), (20, 4), (5, 2)])
def test_the_block_follows_the_size_of_the_terminal(make_terminal, make_games, make_snapshot, size):
    terminal = make_terminal()
    display = BlockDisplay(terminal.stream)
    snapshot = make_snapshot(*make_games(62))
    display.refresh(snapshot)
    terminal.resize(*size)
    display.refresh(snapshot)
    columns, lines = size
    block = block_lines(snapshot, columns - 1, max(1, lines - 3))
    assert terminal.screen[-len(block) :] == block
    assert sum(line.startswith("game ") for line in terminal.screen) <= 1
    display.refresh(snapshot)
    assert terminal.screen[-len(block) :] == block


def test_a_terminal_that_is_gone_does_not_end_the_run(make_terminal, make_snapshot):
    terminal = make_terminal()
    display = BlockDisplay(terminal.stream)
    display.refresh(make_snapshot())
    terminal.stream.close()
    display.refresh(make_snapshot())
    display.close()


@pytest.mark.parametrize("term", ["dumb", "", None])
def test_a_dumb_terminal_gets_plain_lines(make_terminal, monkeypatch, term):
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    assert isinstance(make_display(make_terminal().stream), LineDisplay)


def test_a_file_gets_plain_lines(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with open(tmp_path / "out", "w") as file:
        assert isinstance(make_display(file), LineDisplay)
