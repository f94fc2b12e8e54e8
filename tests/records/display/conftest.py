import pytest

from tests.terminal import Terminal


@pytest.fixture
def make_terminal():
    terminals = []

    def make(*size):
        terminals.append(Terminal(*size))
        return terminals[-1]

    yield make
    for terminal in terminals:
        terminal.close()
