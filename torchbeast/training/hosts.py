"""The hosts that have joined a run: what happened to them, and what each has contributed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from torchbeast.envs.games import short_name
from torchbeast.joining.config import GatewayConfig, HostEvent
from torchbeast.records.snapshot import HostSnapshot
from torchbeast.runtime.allocation import ServerLoad
from torchbeast.runtime.text import counted
from torchbeast.training.setup import Setup

log = logging.getLogger("torchbeast")

VERBS = {"joined": "joined", "left": "left", "lost": "is lost", "refused": "is refused"}


def plan_gateway(setup: Setup, basename: str, seed: int, version: str) -> GatewayConfig:
    """Returns what the gateway of a run tells hosts.

    Args:
        setup: the run.
        basename: of the sockets to which the actor pool connects.
        seed: of the environments.
        version: of this package.
    """
    config = setup.config
    return GatewayConfig(
        version=version,
        games=config.games,
        names=tuple(map(short_name, config.games)),
        loads=setup.servers,
        basename=basename,
        observation=config.observation._asdict(),
        full_action_space=setup.full_action_space,
        observation_shape=setup.agent.observation_shape,
        num_actions=setup.agent.num_actions,
        step_timeout_s=config.step_timeout_s,
        seed=seed,
        tls_dir=config.servers.tls_dir,
        env_addresses=config.servers.env_addresses,
    )


class Hosts:
    """Counts the steps of each host.

    Every step of a place belongs to the host that filled it last, so the counts of all hosts add up
    to those of the places.
    """

    def __init__(self, games: Sequence[str], loads: Sequence[ServerLoad]) -> None:
        """Starts without hosts.

        Args:
            games: ids of the games, by task.
            loads: of each place.
        """
        self._games = [short_name(game) for game in games]
        self._loads = tuple(loads)
        self._owners: list[str | None] = [None] * len(loads)
        self._present: list[bool] = [False] * len(loads)
        self._counted = [0] * len(loads)
        self._steps: dict[str, int] = {}

    def note(self, event: HostEvent, counts: Sequence[int]) -> None:
        """Takes in and logs what happened to a host.

        Args:
            event: what happened.
            counts: agent steps of each place until now.
        """
        self._count(counts)
        for place in event.places:
            self._present[place] = event.kind == "joined"
            if event.kind == "joined":
                self._owners[place] = event.host
                self._steps.setdefault(event.host, 0)
        level = logging.WARNING if event.kind in ("lost", "refused") else logging.INFO
        log.log(level, "%s", self._describe(event))

    def snapshot(self, counts: Sequence[int]) -> tuple[HostSnapshot, ...]:
        """Returns the hosts that ever joined, in the order in which they did.

        Args:
            counts: agent steps of each place until now.
        """
        self._count(counts)
        return tuple(
            HostSnapshot(host, self._environments(self._places_of(host)), steps)
            for host, steps in self._steps.items()
        )

    def _count(self, counts: Sequence[int]) -> None:
        for place, count in enumerate(counts):
            owner = self._owners[place]
            if owner is not None:
                self._steps[owner] += count - self._counted[place]
                self._counted[place] = count

    def _places_of(self, host: str) -> list[int]:
        return [i for i, owner in enumerate(self._owners) if owner == host and self._present[i]]

    def _environments(self, places: Sequence[int]) -> int:
        return sum(self._loads[place].num_environments for place in places)

    def _describe(self, event: HostEvent) -> str:
        if not event.host:
            return event.reason
        text = f"Host {event.host} {VERBS[event.kind]}"
        if event.reason:
            text += f": {event.reason}"
        if event.places:
            games = dict.fromkeys(self._games[self._loads[place].task] for place in event.places)
            count = counted(self._environments(event.places), "environment")
            filled = f"{sum(self._present)} of {counted(len(self._present), 'place')} filled"
            text += f" ({count} of {', '.join(games)}; {filled})"
        return text
