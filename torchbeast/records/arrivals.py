"""When the steps of each game arrived, to notice games whose environments hang."""

from __future__ import annotations

from collections.abc import Sequence

# Seconds after which a silence is displayed, and after which there is a warning.
SHOWN_AFTER_S = 20.0
WARNED_AFTER_S = 60.0
# With many games and a slow network, minutes pass between two rollouts of a game. So a silence is
# unusual only if it is this many times as long as the mean time between arrivals.
USUAL_INTERVALS = 5


class Arrivals:
    """Measures for how long no steps of a game have arrived.

    A game is silent only if steps of other games arrive: when the whole run waits, for example for
    a checkpoint, no game is at fault. Times are in seconds of one clock.
    """

    def __init__(self, num_games: int) -> None:
        self._first: float | None = None
        self._newest = 0.0
        self._batches = 0
        self._last: list[float | None] = [None] * num_games
        self._counts = [0] * num_games
        self._warned: set[int] = set()
        self._warned_of_stall = False

    def record(self, task_steps: Sequence[int], now: float) -> None:
        """Takes in a batch with ``task_steps[i]`` steps of game ``i``, which arrived at ``now``."""
        if self._first is None:
            self._first = now
        self._newest = now
        self._batches += 1
        self._warned_of_stall = False
        for task, steps in enumerate(task_steps):
            if steps:
                self._last[task] = now
                self._counts[task] += 1

    def silence(self, task: int, now: float, at_least: float = SHOWN_AFTER_S) -> float | None:
        """Returns the seconds since steps of a game arrived; None unless that is unusually long.

        Args:
            task: the game.
            now: the present time.
            at_least: shorter silences are never unusual, in seconds.
        """
        if self._first is None:
            return None
        last = self._last[task]
        since = self._first if last is None else last
        # Counted until the newest steps of any game, not until now: else a game would seem silent
        # when the whole run waits.
        missed = self._newest - since
        if missed < max(at_least, USUAL_INTERVALS * self._interval(task)):
            return None
        return now - since

    def stall(self, now: float, at_least: float = SHOWN_AFTER_S) -> float | None:
        """Returns the seconds since steps of any game arrived.

        None unless that is unusually long.
        """
        if self._first is None:
            return None
        usual = (self._newest - self._first) / max(1, self._batches - 1)
        silent = now - self._newest
        return silent if silent >= max(at_least, USUAL_INTERVALS * usual) else None

    def newly_silent(self, now: float) -> dict[int, float]:
        """Returns the games to warn about, and their silence in seconds. Each is returned once."""
        silences = {
            task: self.silence(task, now, WARNED_AFTER_S)
            for task in range(len(self._last))
            if task not in self._warned
        }
        silent = {task: seconds for task, seconds in silences.items() if seconds is not None}
        self._warned.update(silent)
        return silent

    def newly_stalled(self, now: float) -> float | None:
        """Returns the seconds without any steps, if a warning is due. Once per stall."""
        seconds = None if self._warned_of_stall else self.stall(now, WARNED_AFTER_S)
        self._warned_of_stall = self._warned_of_stall or seconds is not None
        return seconds

    def _interval(self, task: int) -> float:
        """The mean time between two arrivals of a game."""
        assert self._first is not None
        last, count = self._last[task], self._counts[task]
        if last is not None and count > 1:
            return (last - self._first) / (count - 1)
        # Nothing is known of this game yet: the mean of all games.
        total = sum(self._counts)
        return (self._newest - self._first) * len(self._counts) / max(1, total)
