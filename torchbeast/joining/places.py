"""The places of a learner, and which of them a host gets."""

from __future__ import annotations

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
        taken: list[int] = []
        while len(taken) < count:
            candidates = [i for i in self._free if self._loads[i].task in tasks]
            if not candidates:
                break
            place = min(candidates, key=lambda i: (self._filled(self._loads[i].task), i))
            self._free.remove(place)
            taken.append(place)
        return tuple(sorted(taken))

    def free(self, places: Collection[int]) -> None:
        """Gives places back."""
        self._free.update(places)

    def _filled(self, task: int) -> float:
        """The share of a game's environments that hosts have."""
        mine = [(i, load) for i, load in enumerate(self._loads) if load.task == task]
        filled = sum(load.num_environments for i, load in mine if i not in self._free)
        return filled / sum(load.num_environments for _, load in mine)
