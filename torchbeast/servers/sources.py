"""Where the environment servers of a run come from: a fixed list, or processes of the run's own.

:mod:`torchbeast.servers.cluster` has a third source, a Ray cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from torchbeast.core.types import RunError
from torchbeast.servers.addresses import server_addresses


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
    """Server processes on this machine, and one that supervises them.

    They run in a new session. Ctrl-C reaches only the learner, which then ends them in order.
    """

    def __init__(
        self,
        basename: str | None,
        num_servers: int,
        arguments: list[str],
        tls: Sequence[str] | None = None,
    ) -> None:
        """Plans the servers; :meth:`__enter__` starts them.

        Args:
            basename: of the servers' addresses; None for sockets in a private directory.
            num_servers: server processes.
            arguments: the flags of polybeast_env that say what they serve.
            tls: certificate, key and root, as text.
        """
        super().__init__([], tls)
        self._basename = basename
        self._num_servers = num_servers
        self._arguments = arguments
        self._directory = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnServers:
        basename = self._basename
        if basename is None:
            directory = tempfile.mkdtemp(prefix="torchbeast-")
            self._directory.callback(shutil.rmtree, directory, ignore_errors=True)
            basename = f"unix:{directory}/env"
        self.addresses = server_addresses([basename], self._num_servers)
        command = [
            sys.executable,
            "-m",
            "torchbeast.polybeast_env",
            *self._arguments,
            f"--pipes_basename={basename}",
            f"--num_servers={self._num_servers}",
            f"--parent_pid={os.getpid()}",
            *(["--private_directory"] if self._basename is None else []),
        ]
        self._process = subprocess.Popen(command, start_new_session=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            _end(self._process)
        self._directory.close()

    def changes(self) -> list[tuple[int, str]]:
        if self._process is not None and self._process.poll() is not None:
            # They have said why.
            raise RunError(f"the environment servers ended (exit code {self._process.returncode})")
        return []


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    # Servers may outlive a supervisor that was killed: only Linux ends children with parents.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
