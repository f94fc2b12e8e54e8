"""PolyBeast: ``python -m torchbeast.polybeast``. Flags, then wiring.

Environment servers step games; the actor pool streams their observations to inference threads and
whole rollouts to learner threads.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torchbeast
from torchbeast import evaluate
from torchbeast.cli import flags as flags_lib
from torchbeast.cli.machine_flags import add_pool_flags, add_server_flags
from torchbeast.cli.parsing import Parser
from torchbeast.core.types import UsageError
from torchbeast.runtime.text import counted
from torchbeast.runtime.threads import StopSignals

if TYPE_CHECKING:
    import socket

    from torchbeast.joining.process import GatewayProcess
    from torchbeast.training import Setup, TrainingConfig, TrainingRun
    from torchbeast.training.pipeline import Pipeline

log = logging.getLogger("torchbeast")


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``python -m torchbeast.polybeast``."""
    parser = Parser("polybeast", "Trains and tests agents on one or many Atari games.")
    flags_lib.add_training_flags(parser)
    add_pool_flags(parser)
    group = add_server_flags(parser)
    group.add_argument(
        "--start_servers",
        action="store_true",
        default=True,
        help="Start the servers, and end them with the run. (default: on)",
    )
    group.add_argument(
        "--no_start_servers",
        dest="start_servers",
        action="store_false",
        help="Connect to servers that run already, started with torchbeast.polybeast_env.",
    )
    group.add_argument(
        "--join_address",
        metavar="HOST:PORT",
        help="Start no servers. Wait here for hosts that join with torchbeast.polybeast_env --join "
        "and run --num_servers servers together; they may come and leave at any time. "
        "(default: the program starts the servers)",
    )
    group.add_argument(
        "--env_addresses",
        metavar="FILE",
        help="Start no servers. Connect to those of a file with a line HOST:PORT GAME for each, "
        "which is read again every few seconds. May be given with --join_address. (default: the "
        "program starts the servers)",
    )
    flags_lib.add_test_flags(parser)
    return parser


def train(config: TrainingConfig, signals: StopSignals) -> int:
    """Trains until --total_steps or a signal. Returns the exit code."""
    from torchbeast.core.weights import PublishedWeights
    from torchbeast.runtime import servers as servers_lib
    from torchbeast.training import TrainingRun, open_run
    from torchbeast.training.pipeline import Pipeline

    servers_lib.check_compiled()
    with contextlib.ExitStack() as stack:
        setup = stack.enter_context(open_run(config))
        check_pool(setup)
        listener = stack.enter_context(listen_for_hosts(config))
        run = stack.enter_context(
            TrainingRun(
                setup,
                signals,
                lambda agent: PublishedWeights(
                    lambda: agent.inference_copy().to(setup.devices.inference),
                    setup.plan.inference_threads,
                ),
                queue_size=config.learner_queue_size,
            )
        )
        basename = stack.enter_context(servers_lib.socket_directory(config.servers.pipes_basename))
        if not config.servers.come_and_go:
            check_servers = stack.enter_context(start_servers(setup, basename, run.server_seed))
            pipeline = Pipeline(setup, run, basename)
        else:
            gateway = stack.enter_context(start_gateway(setup, basename, run.server_seed, listener))
            pipeline = Pipeline(setup, run, basename)
            check_servers = connect_hosts(setup, run, pipeline, gateway)
        pipeline.start()
        return run.watch(check=check_servers, queues=pipeline.sizes, stop=pipeline.close)


def check_pool(setup: Setup) -> None:
    """Raises UsageError if the actor pool cannot have these sizes or reach its servers."""
    from torchbeast.joining.tls import make_tls_context
    from torchbeast.runtime.servers import check_basenames

    config, servers = setup.config, setup.config.servers
    if servers.come_and_go and servers.pipes_basename is not None:
        raise UsageError("--join_address and --env_addresses exclude --pipes_basename")
    if config.learner_queue_size < config.learning.batch_size:
        raise UsageError("--max_learner_queue_size must be at least --batch_size")
    make_tls_context(servers.tls_dir, is_server=False)  # To find out whether it can be made.
    if servers.pipes_basename is not None:
        if servers.start_servers and "," in servers.pipes_basename:
            raise UsageError("--pipes_basename of several hosts needs --no_start_servers")
        check_basenames(
            servers.pipes_basename, len(setup.servers), len(config.games), servers.tls_dir
        )
        directory = setup.directory.resolve()
        for name in servers.pipes_basename.split(","):
            # The learner holds the lock of this directory, which a server needs to bind a socket.
            if (
                name.startswith("unix:")
                and Path(name.removeprefix("unix:")).parent.resolve() == directory
            ):
                raise UsageError(f"--pipes_basename {name}: it must not be in the run's directory")
    elif not servers.start_servers and not servers.come_and_go:
        raise UsageError("--no_start_servers needs --pipes_basename: where the servers are")


@contextlib.contextmanager
def start_servers(setup: Setup, basename: str, seed: int) -> Iterator[Callable[[], None]]:
    """Runs the environment servers, unless the user runs them.

    Yields:
        A function that raises RunError if the servers are gone for good.
    """
    from torchbeast.runtime.servers import EnvServers

    config = setup.config
    if not config.servers.start_servers:
        yield lambda: None
        return
    tls_dir = config.servers.tls_dir
    arguments = [
        f"--env={','.join(config.games)}",
        *(f"--{name}={value}" for name, value in config.observation._asdict().items()),
        f"--seed={seed}",
        f"--step_timeout_s={config.step_timeout_s}",
        *(["--full_action_space"] if setup.full_action_space else []),
        *([f"--tls_dir={tls_dir}"] if tls_dir else []),
    ]
    is_private = config.servers.pipes_basename is None
    with EnvServers(basename, len(setup.servers), is_private, arguments) as servers:
        yield servers.check


@contextlib.contextmanager
def listen_for_hosts(config: TrainingConfig) -> Iterator[socket.socket | None]:
    """Makes the socket to which hosts connect, and checks --env_addresses. A context manager.

    Yields:
        The socket; None if no hosts are to join.

    Raises:
        UsageError: an address, a certificate or the file of addresses cannot be used.
    """
    from torchbeast.envs.games import short_name
    from torchbeast.joining.dialer import read_addresses
    from torchbeast.joining.process import listen

    servers = config.servers
    if servers.env_addresses is not None:
        names = [short_name(game) for game in config.games]
        read_addresses(servers.env_addresses, names, servers.tls_dir)
    if servers.join_address is None:
        yield None
        return
    with listen(servers.join_address, servers.tls_dir) as listener:
        yield listener


def start_gateway(
    setup: Setup, basename: str, seed: int, listener: socket.socket | None
) -> GatewayProcess:
    """Returns the process that takes hosts in, for a ``with`` statement."""
    from torchbeast.joining.process import GatewayProcess
    from torchbeast.training.hosts import plan_gateway

    if listener is not None:
        host, port = listener.getsockname()[:2]
        places = counted(len(setup.servers), "place")
        log.info("Hosts can join at %s port %d: %s", host, port, places)
    config = plan_gateway(setup, basename, seed, torchbeast.__version__)
    return GatewayProcess(config, listener)


def connect_hosts(
    setup: Setup, run: TrainingRun, pipeline: Pipeline, gateway: GatewayProcess
) -> Callable[[], None]:
    """Has a run count, show and record what hosts contribute.

    Returns:
        A function that takes in what happened to hosts. It raises RunError if none can join any
        more.
    """
    from torchbeast.training.hosts import Hosts

    hosts = Hosts(setup.config.games, setup.servers)
    run.show_hosts(lambda: hosts.snapshot(pipeline.server_counts()))

    def check() -> None:
        for event in gateway.events():
            hosts.note(event, pipeline.server_counts())

    return check


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)

    def train_from_flags(signals: StopSignals) -> int:
        from torchbeast.training import TrainingConfig

        return train(TrainingConfig.from_flags(vars(flags)), signals)

    return evaluate.run_mode("polybeast", flags, train_from_flags)


if __name__ == "__main__":
    sys.exit(main())
