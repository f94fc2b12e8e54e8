"""What the machines with environment servers contribute to a run."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple


class HostSnapshot(NamedTuple):
    """A machine with environment servers."""

    name: str
    environments: int
    """Environments that it steps now; 0 if it has left."""

    steps: int
    """Agent steps of its rollouts since the run was started or resumed. Some rollouts may still
    wait for the learner."""


Hosts = tuple[HostSnapshot, ...]
HOST_FIELDS = ["step", *HostSnapshot._fields]


class HostSteps:
    """Counts the steps of each machine while servers move from one to another.

    >>> hosts = HostSteps([2, 2])
    >>> hosts.update(["a", ""], [0, 0])
    (HostSnapshot(name='a', environments=2, steps=0),)
    >>> hosts.update(["b", "b"], [80, 0])[0]
    HostSnapshot(name='a', environments=0, steps=80)
    """

    def __init__(self, loads: Sequence[int]) -> None:
        """``loads``: environments of each server."""
        self._loads = loads
        self._steps: collections.Counter[str] = collections.Counter()
        self._hosts = [""] * len(loads)
        self._counts = [0] * len(loads)

    def update(self, hosts: Sequence[str], counts: Sequence[int]) -> Hosts:
        """Takes in where the servers are, and returns what each machine has contributed.

        Args:
            hosts: the machine of each server, empty for one that is not there; no elements if that
                is not known.
            counts: agent steps of each server so far, wherever it was.
        """
        environments: collections.Counter[str] = collections.Counter()
        for i, host in enumerate(hosts):
            self._steps[self._hosts[i] or host] += counts[i] - self._counts[i]
            self._hosts[i], self._counts[i] = host, counts[i]
            environments[host] += self._loads[i]
            self._steps[host] += 0  # Makes the entry of a new host.
        return tuple(
            HostSnapshot(name, environments[name], steps)
            for name, steps in self._steps.items()
            if name
        )
