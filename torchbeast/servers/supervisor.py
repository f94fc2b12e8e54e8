"""Environment servers as processes of the run's own, on this machine."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing.connection
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchbeast.core.types import ObservationConfig, RunError
from torchbeast.runtime.alarm import describe_end
from torchbeast.runtime.allocation import task_of
from torchbeast.runtime.workers import (
    Failures,
    begin_worker,
    end_workers,
    fork_context,
    start_with_pipe,
)
from torchbeast.servers.addresses import server_addresses
from torchbeast.servers.sources import ServerSource

# Ends a server process at any time. SIGTERM would not do: it comes when the parent has died, and
# then nobody is left to kill a server that is stuck.
STOP_SIGNAL = signal.SIGUSR1


class ServedGames(NamedTuple):
    """What environment servers serve."""

    games: tuple[str, ...]
    observation: ObservationConfig
    full_action_space: bool
    seed: int
    step_timeout_s: float

    def describe(self, task: int) -> str:
        """Describes a game's environments, for the learner to compare."""
        from torchbeast.envs import describe_environment

        return describe_environment(self.games[task], self.observation, self.full_action_space)


def make_env_init(served: ServedGames, task: int, seeds: tuple[int, ...]) -> Callable[[], Any]:
    """Returns the function that makes the environments of a server.

    Args:
        task: index of this server's game.
        seeds: what tells this server from all others of the run, those before it included.
    """
    from torchbeast.envs import derive_seed, make_watched

    counter = itertools.count()

    def env_init() -> Any:
        # A different seed for every environment ever made in this run.
        return make_watched(
            served.games[task],
            served.observation,
            full_action_space=served.full_action_space,
            seed=derive_seed(served.seed, *seeds, next(counter)),
            timeout_s=served.step_timeout_s,
        )

    return env_init


def serve(
    served: ServedGames,
    task: int,
    address: str,
    tls: Sequence[str] | None,
    seeds: tuple[int, int],
    errors: Any,
) -> None:
    """Runs a server process, which serves one game until ``STOP_SIGNAL``.

    ``errors`` is a pipe that takes the reason if the address cannot be had: an exit code would be
    mistaken for that of an environment that ends its process.
    """
    from libtorchbeast import Server
    from torchbeast.envs import derive_seed

    begin_worker(seed=derive_seed(served.seed, *seeds))
    env_init = make_env_init(served, task, seeds)
    try:
        server = Server(env_init, address, task, tls, environment=served.describe(task))
        signal.signal(STOP_SIGNAL, lambda *_: server.stop())
        server.run()
    except (RuntimeError, ValueError) as error:
        errors.send(str(error))


class OwnServers(ServerSource):
    """Server processes on this machine: starts, replaces and ends them. A context manager."""

    def __init__(
        self,
        served: ServedGames,
        num_servers: int,
        basename: str | None = None,
        tls: Sequence[str] | None = None,
    ) -> None:
        """Plans the servers; :meth:`__enter__` starts them.

        Args:
            num_servers: how many; :func:`torchbeast.runtime.allocation.task_of` tells their games.
            basename: of the servers' addresses; None for sockets in a private directory.
            tls: certificate, key and root, as text.
        """
        super().__init__([], tls)
        # A forked process shares the pages of what was imported; the fork server itself never
        # creates a gRPC object, which would not survive it.
        self._context = fork_context("torchbeast.envs", "libtorchbeast")
        self._served = served
        self.num_servers = num_servers
        self._basename = basename
        self._servers: list[Any] = [None] * num_servers
        self._errors: list[Any] = [None] * num_servers
        self._starts = [0] * num_servers
        self._failures = Failures(num_servers, served.step_timeout_s)
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> OwnServers:
        with contextlib.ExitStack() as stack:
            basename = self._basename
            if basename is None:
                directory = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="torchbeast-", ignore_cleanup_errors=True)
                )
                basename = f"unix:{directory}/env"
            self.addresses = server_addresses([basename], self.num_servers)
            stack.callback(self._stop)
            for index in range(self.num_servers):
                self._start(index)
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def changes(self) -> list[tuple[int, str]]:
        self.replace_ended(timeout=0)
        return []

    def replace_ended(self, timeout: float) -> None:
        """Replaces servers that died, after ``timeout`` seconds or as soon as one died.

        Raises RunError if that does not help.
        """
        multiprocessing.connection.wait([s.sentinel for s in self._servers], timeout)
        for index, server in enumerate(self._servers):
            if server.is_alive():
                continue
            with contextlib.suppress(EOFError), self._errors[index] as errors:
                if errors.poll():
                    raise RunError(errors.recv())
            reason = describe_end(server.exitcode, self._served.step_timeout_s)
            self._failures.note(index, f"server {index}", reason)
            self._start(index)

    def _start(self, index: int) -> None:
        task, address = task_of(index, len(self._served.games)), self.addresses[index]
        arguments = (self._served, task, address, self.tls, (index, self._starts[index]))
        self._servers[index], self._errors[index] = start_with_pipe(
            self._context, serve, *arguments, name=f"env-{index}"
        )
        self._starts[index] += 1

    def _stop(self) -> None:
        """Has all servers close their environments and sockets; kills those that are stuck."""
        for server in self._servers:
            if server is not None and server.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server.pid, STOP_SIGNAL)
        end_workers(self._servers)
