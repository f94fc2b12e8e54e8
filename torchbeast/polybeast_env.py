"""Environment servers: ``python -m torchbeast.polybeast_env``.

One supervisor starts a process per server, restarts those that die and takes all down with it.
PolyBeast starts one for itself; start your own for ``polybeast --no_start_servers``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing.connection
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.command import default_interrupt, open_streams, print_error
from torchbeast.cli.machine_flags import add_server_flags
from torchbeast.cli.parsing import Parser
from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime import servers as servers_lib
from torchbeast.runtime.allocation import default_num_servers, task_of
from torchbeast.runtime.threads import StopSignals
from torchbeast.runtime.watchdog import Watchdog
from torchbeast.runtime.workers import Restarts, follow_parent, fork_context, start_worker

if TYPE_CHECKING:
    from torchbeast.envs import ObservationConfig


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``python -m torchbeast.polybeast_env``."""
    parser = Parser("polybeast_env", "Serves environments to `polybeast --no_start_servers`.")
    flags_lib.add_env_flags(parser)
    group = add_server_flags(parser, default_basename="%(default)s")
    group.set_defaults(pipes_basename="unix:/tmp/polybeast")
    group.add_argument(
        "--full_action_space",
        action="store_true",
        help="Offer all 18 actions. Set by itself where the games of --env have different actions.",
    )
    group.add_argument(
        "--multitask",
        action="store_true",
        help="Accepted as in 2019, without effect: every server says which game it plays.",
    )
    parser.add_argument("--parent_pid", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--private_directory", action="store_true", help=argparse.SUPPRESS)
    return parser


class SupervisorConfig(NamedTuple):
    """The servers that one supervisor keeps alive, and what they serve."""

    games: tuple[str, ...]
    observation: ObservationConfig
    full_action_space: bool
    pipes_basename: str
    tasks: tuple[int, ...]
    """Index of the game that each server has."""
    seed: int
    tls: list[str] | None
    """Certificate, key and root, as text."""
    private_directory: bool
    """Whether the sockets' directory is to be removed at the end."""
    step_timeout_s: float


def serve(
    config: SupervisorConfig, index: int, generation: int, watchdog: Watchdog, errors: Any
) -> None:
    """Runs a server process, which serves one game until it is killed.

    ``errors`` is a pipe that takes the reason if the address cannot be had: an exit code would be
    mistaken for that of an environment that ends its process.
    """
    from libtorchbeast import Server
    from torchbeast.envs import derive_seed, make_env
    from torchbeast.runtime.workers import begin_worker

    begin_worker(seed=derive_seed(config.seed, index, generation))
    task = config.tasks[index]
    counter = itertools.count()

    def env_init() -> Any:
        # A different seed for every environment ever made in this run.
        with watchdog.inside(index):
            env = make_env(
                config.games[task],
                **config.observation._asdict(),
                full_action_space=config.full_action_space,
                seed=derive_seed(config.seed, index, generation, next(counter)),
            )
        return watchdog.watch(index, env)

    address = servers_lib.server_address(config.pipes_basename, index)
    try:
        Server(env_init, address, task, config.tls).run()
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
        self._watchdog = Watchdog(self._context, len(config.tasks), config.step_timeout_s)
        self._restarts = Restarts("polybeast_env", "server", len(config.tasks))

    def start(self) -> None:
        """Starts all servers."""
        for index in range(len(self._servers)):
            self._start_one(index)

    def _start_one(self, index: int) -> None:
        generation = self._restarts.note_start(index)
        self._errors[index], theirs = self._context.Pipe(duplex=False)
        self._servers[index] = self._context.Process(
            target=serve,
            args=(self._config, index, generation, self._watchdog, theirs),
            name=f"env-{index}",
        )
        start_worker(self._servers[index])
        theirs.close()  # So that the pipe ends with the server.

    def watch(self, timeout: float) -> str | None:
        """Replaces servers that died or hang; returns why it cannot go on, if so."""
        multiprocessing.connection.wait([s.sentinel for s in self._servers], timeout)
        for index, server in enumerate(self._servers):
            if self._watchdog.is_hung(index):
                self._watchdog.end(server)
            if server.is_alive():
                continue
            with contextlib.suppress(EOFError), self._errors[index] as errors:
                if errors.poll():
                    return str(errors.recv())
            try:
                self._restarts.note_end(index, *self._watchdog.explain(index, server.exitcode))
            except RunError as error:
                return str(error)
            self._start_one(index)
        return None

    def stop(self) -> None:
        """Ends all servers; they hold nothing worth waiting for."""
        servers = [server for server in self._servers if server is not None]
        for server in servers:
            server.kill()
        for server in servers:
            server.join()
        if self._config.pipes_basename.startswith("unix:"):
            for index in range(len(self._servers)):
                address = servers_lib.server_address(self._config.pipes_basename, index)
                servers_lib.remove_dead_socket(address.removeprefix("unix:"))
            if self._config.private_directory:
                directory = os.path.dirname(self._config.pipes_basename.removeprefix("unix:"))
                with contextlib.suppress(OSError):
                    os.rmdir(directory)


def read_config(flags: argparse.Namespace) -> SupervisorConfig:
    """Builds the configuration from the flags. PolyBeast has planned its games already.

    Raises:
        UsageError: the flags contradict each other or the games.
        RunError: a custom environment failed when it was made.
    """
    from torchbeast.cli.config import build
    from torchbeast.envs import ObservationConfig, parse_games, plan_envs
    from torchbeast.runtime.threads import available_cores

    games = parse_games(flags_lib.DEFAULT_ENV if flags.env is None else flags.env)
    cores = available_cores()  # A learner on as many expects no more servers by default.
    num_servers = flags.num_servers or default_num_servers(cores, [cores] * len(games))
    if num_servers < len(games):
        raise UsageError(f"{len(games)} games need at least as many servers, not {num_servers}")
    observation = build(ObservationConfig, vars(flags))
    full_action_space = flags.full_action_space
    if flags.parent_pid is None and not full_action_space:
        full_action_space = plan_envs(games, observation, flags.step_timeout_s).full_action_space
    servers_lib.check_basename(flags.pipes_basename, num_servers, flags.tls_dir)
    servers_lib.check_tls(flags.tls_dir)
    seed = flags.seed if flags.seed is not None else int.from_bytes(os.urandom(4), "little")
    return SupervisorConfig(
        games=games,
        observation=observation,
        full_action_space=full_action_space,
        pipes_basename=flags.pipes_basename,
        tasks=tuple(task_of(index, len(games)) for index in range(num_servers)),
        seed=seed,
        tls=servers_lib.load_tls(flags.tls_dir),
        # PolyBeast made it for us; it may not live to remove it.
        private_directory=flags.parent_pid is not None and flags.private_directory,
        step_timeout_s=flags.step_timeout_s,
    )


def supervise(config: SupervisorConfig, parent_pid: int | None, signals: StopSignals) -> int:
    """Runs the servers until a signal comes, or they or the parent end. Returns the exit code."""
    supervisor = Supervisor(config)
    try:
        supervisor.start()
        count = len(config.tasks)
        ends = (servers_lib.server_address(config.pipes_basename, i) for i in (0, count - 1))
        if parent_pid is None:
            print(f"{count} environment servers on {' to '.join(ends)}", flush=True)
        while signals.received is None:
            reason = supervisor.watch(timeout=0.5)
            if reason is not None:
                print_error("polybeast_env", reason)
                return 1
            if parent_pid is not None and os.getppid() != parent_pid:
                return 1  # PolyBeast is gone.
        return 0
    finally:
        supervisor.stop()


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)
    open_streams()
    if flags.parent_pid is not None:
        follow_parent()
    try:
        with default_interrupt():
            servers_lib.check_compiled()
        with default_interrupt():
            # Not with StopSignals: a custom environment may hang here.
            config = read_config(flags)
            with StopSignals() as signals:
                return supervise(config, flags.parent_pid, signals)
    except (UsageError, RunError) as error:
        print_error("polybeast_env", error)
        return 2 if isinstance(error, UsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
