"""What the gateway's process gets from the learner, and what it reports."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchbeast.joining.admission import Bounds
from torchbeast.joining.tenancy import Timing
from torchbeast.runtime.allocation import ServerLoad


class GatewayConfig(NamedTuple):
    """What hosts are told, and what is asked of them."""

    version: str
    """Of this package."""
    games: tuple[str, ...]
    names: tuple[str, ...]
    """Of the games, for people."""
    loads: tuple[ServerLoad, ...]
    """Of each place."""
    basename: str
    """Of the sockets to which the actor pool connects."""
    observation: dict[str, Any]
    """The fields of ObservationConfig."""
    full_action_space: bool
    observation_shape: tuple[int, ...]
    num_actions: int
    step_timeout_s: float
    seed: int
    tls_dir: str | None
    env_addresses: str | None = None
    """A file with the addresses of servers that listen for the learner."""
    timing: Timing = Timing()
    bounds: Bounds = Bounds()


class HostEvent(NamedTuple):
    """To the learner: something happened to a host."""

    kind: str
    """joined, left, lost or refused."""
    host: str
    places: tuple[int, ...]
    reason: str
