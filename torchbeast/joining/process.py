"""The learner's end of the gateway: its process, and what it reports."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import subprocess
import sys
from typing import Any

from torchbeast.core.types import RunError, UsageError
from torchbeast.joining.config import GatewayConfig, HostEvent
from torchbeast.joining.tls import make_tls_context, split_flag

# How long the process gets to tell the hosts that the learner ends.
EXIT_TIMEOUT_S = 1.0


def listen(address: str, tls_dir: str | None) -> socket.socket:
    """Returns a socket that listens for hosts.

    Args:
        address: ``HOST:PORT``; port 0 is any free one.
        tls_dir: the directory of the certificates; None for an address of this machine only.

    Raises:
        UsageError: the address or a certificate cannot be used.
    """
    host, port = split_flag("--join_address", address, tls_dir)
    make_tls_context(tls_dir, is_server=True)  # To find out whether it can be made.
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(f"--join_address {address}: {error.strerror or error}") from error


class GatewayProcess:
    """Starts and ends the gateway's process. Use as a context manager.

    The process is a fresh interpreter, so that it inherits neither threads nor gRPC objects, in a
    new session: Ctrl-C reaches the learner alone. It ends when its connection does, and so with the
    learner, however that ends.
    """

    def __init__(self, config: GatewayConfig, listener: socket.socket | None) -> None:
        """Starts nothing yet.

        Args:
            config: of the gateway.
            listener: the socket that hosts connect to; None if none do. It is closed here when the
                process has it.
        """
        self._config = config
        self._listener = listener
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None

    def __enter__(self) -> GatewayProcess:
        self._connection, theirs = multiprocessing.Pipe()
        with theirs, self._listener or contextlib.nullcontext() as listener:
            fds = [theirs.fileno(), *([listener.fileno()] if listener else [])]
            code = (
                "from torchbeast.joining.gateway import serve; "
                f"serve({fds[0]}, {fds[1] if listener else None})"
            )
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
                env=dict(os.environ),
            )
        self._connection.send(self._config)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        assert self._process is not None
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def events(self) -> list[HostEvent]:
        """Returns what happened since the last call.

        Raises:
            RunError: the process is gone.
        """
        events = []
        with contextlib.suppress(EOFError, OSError):
            while self._connection.poll():
                events.append(self._connection.recv())
        assert self._process is not None
        if not events and self._process.poll() is not None:
            raise RunError(
                f"the process that hosts connect to ended (exit code {self._process.returncode})"
            )
        return events
