"""Where the environment servers of a run come from: a fixed list, or processes of the run's own.

:mod:`torchbeast.servers.cluster` has a third source, a Ray cluster.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence

from torchbeast.servers.addresses import server_addresses
from torchbeast.servers.supervisor import ServedGames, Supervisor, SupervisorConfig


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

    def hosts(self) -> list[str]:
        """Returns the machine that each server is on, empty for one that is not there.

        An empty list if the source does not know.
        """
        return []

    def explain(self, text: str) -> str:
        """Returns an error's text with what is known of the servers whose addresses it names."""
        return text


class OwnServers(ServerSource):
    """Server processes of the run's own, on this machine."""

    def __init__(
        self,
        served: ServedGames,
        tasks: Sequence[int],
        basename: str | None = None,
        tls: Sequence[str] | None = None,
    ) -> None:
        """Plans the servers; :meth:`__enter__` starts them.

        Args:
            served: what they serve.
            tasks: index of the game that each server has.
            basename: of the servers' addresses; None for sockets in a private directory.
            tls: certificate, key and root, as text.
        """
        super().__init__([], tls)
        self._served = served
        self._tasks = tuple(tasks)
        self._basename = basename
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> OwnServers:
        with contextlib.ExitStack() as stack:
            basename = self._basename
            if basename is None:
                directory = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="torchbeast-", ignore_cleanup_errors=True)
                )
                basename = f"unix:{directory}/env"
            self.addresses = server_addresses([basename], len(self._tasks))
            self._supervisor = Supervisor(
                SupervisorConfig(self._served, basename, self._tasks, self.tls)
            )
            stack.callback(self._supervisor.stop)
            self._supervisor.start()
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def changes(self) -> list[tuple[int, str]]:
        self._supervisor.watch(timeout=0)
        return []
