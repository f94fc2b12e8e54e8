"""The places of a learner, and which of them a host gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from torchbeast.runtime.allocation import ServerLoad


class Places:
    """Deals the places of a learner to hosts, those of the games that are short first."""

    def __init__(self, loads: Sequence[ServerLoad]) -> None:
        """Starts with all places free.

        Args:
            loads: the game and the environments of each place.
        """
        self._loads = tuple(loads)
        self._free = set(range(len(loads)))

    @property
    def num_free(self) -> int:
        """Places that no host fills."""
        return len(self._free)

    def deal(self, count: int, tasks: Collection[int]) -> tuple[int, ...]:
        """Takes free places.

        Each next place is one of the game that has the smallest share of its environments.

        Args:
            count: places at most.
            tasks: the games whose places may be taken.

        Returns:
            The places, in their order; fewer than ``count`` if no more are free.

        >>> places = Places([ServerLoad(0, 4), ServerLoad(1, 4), ServerLoad(0, 4)])
        >>> places.deal(2, {0, 1}), places.deal(2, {0, 1}), places.deal(1, {0, 1})
        ((0, 1), (2,), ())
        """
        total: Counter[int] = Counter()
        filled: Counter[int] = Counter()
        free: dict[int, list[int]] = {}
        # From the last to the first, so that the first free one is taken from the end of a list.
        for place, load in reversed(list(enumerate(self._loads))):
            total[load.task] += load.num_environments
            if place not in self._free:
                filled[load.task] += load.num_environments
            elif load.task in tasks:
                free.setdefault(load.task, []).append(place)
        taken: list[int] = []
        while free and len(taken) < count:
            task = min(free, key=lambda task: (filled[task] / total[task], free[task][-1]))
            place = free[task].pop()
            filled[task] += self._loads[place].num_environments
            if not free[task]:
                del free[task]
            taken.append(place)
        self._free.difference_update(taken)
        return tuple(sorted(taken))

    def free(self, places: Collection[int]) -> None:
        """Gives places back."""
        self._free.update(places)
