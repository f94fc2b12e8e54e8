"""The processes that serve environments: one supervisor starts, replaces and ends them."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing.connection
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torchbeast.core.types import RunError
from torchbeast.runtime.watchdog import Watchdog
from torchbeast.runtime.workers import Restarts, begin_worker, fork_context, start_worker
from torchbeast.servers import addresses

if TYPE_CHECKING:
    from torchbeast.envs import ObservationConfig


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


class SupervisorConfig(NamedTuple):
    """The servers that one supervisor keeps alive."""

    served: ServedGames
    pipes_basename: str
    tasks: tuple[int, ...]
    """Index of the game that each server has."""
    tls: Sequence[str] | None
    """Certificate, key and root, as text."""


def make_env_init(
    served: ServedGames,
    task: int,
    seeds: tuple[int, ...],
    watchdog: Watchdog,
    index: int,
) -> Callable[[], Any]:
    """Returns the function that makes the environments of a server.

    Args:
        served: what the servers serve.
        task: index of this server's game.
        seeds: what tells this server from all others of the run, those before it included.
        watchdog: watches the environments.
        index: of the server, for the watchdog.
    """
    from torchbeast.envs import derive_seed, make_env

    counter = itertools.count()

    def env_init() -> Any:
        # A different seed for every environment ever made in this run.
        with watchdog.inside(index):
            env = make_env(
                served.games[task],
                **served.observation._asdict(),
                full_action_space=served.full_action_space,
                seed=derive_seed(served.seed, *seeds, next(counter)),
            )
        return watchdog.watch(index, env)

    return env_init


def serve(
    config: SupervisorConfig, index: int, generation: int, watchdog: Watchdog, errors: Any
) -> None:
    """Runs a server process, which serves one game until it is killed.

    ``errors`` is a pipe that takes the reason if the address cannot be had: an exit code would be
    mistaken for that of an environment that ends its process.
    """
    from libtorchbeast import Server
    from torchbeast.envs import derive_seed

    served, task = config.served, config.tasks[index]
    begin_worker(seed=derive_seed(served.seed, index, generation))
    env_init = make_env_init(served, task, (index, generation), watchdog, index)
    address = addresses.server_address(config.pipes_basename, index)
    try:
        Server(env_init, address, task, config.tls, environment=served.describe(task)).run()
    except (RuntimeError, ValueError) as error:
        errors.send(str(error))


class Supervisor:
    """Keeps the server processes alive."""

    def __init__(self, config: SupervisorConfig) -> None:
        # A forked process shares the pages of what was imported; the fork server itself never
        # creates a gRPC object, which would not survive it.
        self._context = fork_context("torchbeast.envs", "libtorchbeast")
        self._config = config
        self._servers: list[Any] = [None] * len(config.tasks)
        self._errors: list[Any] = [None] * len(config.tasks)
        self._watchdog = Watchdog(self._context, len(config.tasks), config.served.step_timeout_s)
        self._restarts = Restarts("server", len(config.tasks))

    def start(self) -> None:
        """Starts all servers."""
        for index in range(len(self._servers)):
            self._start_one(index)

    def _start_one(self, index: int) -> None:
        generation = self._restarts.note_start(index)
        self._errors[index], theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=serve,
            args=(self._config, index, generation, self._watchdog, theirs),
            name=f"env-{index}",
        )
        start_worker(process)
        self._servers[index] = process
        theirs.close()  # So that the pipe ends with the server.

    def watch(self, timeout: float) -> None:
        """Replaces servers that died or hang, after ``timeout`` seconds or as soon as one died.

        Raises RunError if that does not help.
        """
        multiprocessing.connection.wait([s.sentinel for s in self._servers], timeout)
        for index, server in enumerate(self._servers):
            if self._watchdog.is_hung(index):
                self._watchdog.end(server)
            if server.is_alive():
                continue
            with contextlib.suppress(EOFError), self._errors[index] as errors:
                if errors.poll():
                    raise RunError(errors.recv())
            self._restarts.note_end(index, *self._watchdog.explain(index, server.exitcode))
            self._start_one(index)

    def stop(self) -> None:
        """Ends all servers; they hold nothing worth waiting for."""
        servers = [server for server in self._servers if server is not None]
        for server in servers:
            server.kill()
        for server in servers:
            server.join()
        for index in range(len(servers)):
            addresses.remove_dead_socket(
                addresses.server_address(self._config.pipes_basename, index)
            )
