"""Where the environment servers of a run come from: the base class is a list that is given.

:mod:`torchbeast.servers.supervisor` has processes of the run's own, and
:mod:`torchbeast.servers.cluster` a Ray cluster.
"""

from __future__ import annotations

from collections.abc import Sequence


class ServerSource:
    """Where the environment servers of a run come from. A context manager, in which they run.

    This class is a fixed list of servers that somebody else runs.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        tls: Sequence[str] | None = None,
        tls_server_name: str = "",
    ) -> None:
        """Describes servers that others start.

        Args:
            addresses: of the servers. An empty one is not there yet.
            tls: certificate, key and root of the learner, as text.
            tls_server_name: the name in the servers' certificates, if it is not that of the host.
        """
        self.addresses = list(addresses)
        self.tls = tls
        self.tls_server_name = tls_server_name

    def __enter__(self) -> ServerSource:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def changes(self) -> list[tuple[int, str]]:
        """Returns index and new address of each server whose address has changed since.

        Raises RunError if the servers are gone for good.
        """
        return []

    def explain(self, text: str) -> str:
        """Returns an error's text with what is known of the servers whose addresses it names."""
        return text
