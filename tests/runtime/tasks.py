"""Tasks for child processes, in a module that is imported quickly."""

import time


def succeed(alive):
    return "done"


def hang(alive):
    while True:
        time.sleep(1.0)


def live_slowly(alive):
    """Longer than a second, but never silent for so long."""
    for _ in range(30):
        alive()
        time.sleep(0.1)
    return "done"
