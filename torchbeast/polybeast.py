"""PolyBeast: ``python -m torchbeast.polybeast``. Flags, then wiring.

Environment servers step games; the actor pool streams their observations to inference threads and
whole rollouts to learner threads.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchbeast import play
from torchbeast.cli import flags as flags_lib
from torchbeast.cli.parsing import Parser
from torchbeast.cli.training_flags import add_pool_flags, add_server_flags
from torchbeast.core.types import UsageError
from torchbeast.runtime.threads import StopSignals

if TYPE_CHECKING:
    from torchbeast.train import RunPlan, TrainingConfig


def make_parser() -> Parser:
    """Builds the parser of ``python -m torchbeast.polybeast``."""
    parser = Parser(
        "polybeast", "Trains and tests agents on one or many Atari games.", flags_lib.SHOWN_FLAGS
    )
    flags_lib.add_training_flags(parser)
    add_pool_flags(parser)
    group = add_server_flags(parser)
    group.add_argument("--start_servers", action="store_true", default=True, help=argparse.SUPPRESS)
    group.add_argument(
        "--no_start_servers",
        dest="start_servers",
        action="store_false",
        help="Connect to servers that run already, started with torchbeast.polybeast_env.",
    )
    flags_lib.add_test_flags(parser)
    return parser


def train(config: TrainingConfig, signals: StopSignals) -> int:
    """Trains until --total_steps or a signal. Returns the exit code."""
    from torchbeast.core.weights import PublishedWeights
    from torchbeast.servers import addresses as servers_lib
    from torchbeast.train import TrainingRun, open_run
    from torchbeast.train.pipeline import Pipeline

    servers_lib.check_compiled()
    with contextlib.ExitStack() as stack:
        plan = stack.enter_context(open_run(config))
        check_pool(plan)
        run = stack.enter_context(
            TrainingRun(
                plan,
                signals,
                lambda agent: PublishedWeights(
                    lambda: agent.inference_copy().to(plan.devices.inference),
                    plan.threads.inference_threads,
                ),
                queue_size=config.learner_queue_size,
            )
        )
        basename = stack.enter_context(servers_lib.socket_directory(config.servers.pipes_basename))
        check_servers = stack.enter_context(start_servers(plan, basename, run.server_seed))
        pipeline = Pipeline(plan, run, basename)
        pipeline.start()
        return run.watch(check=check_servers, queues=pipeline.sizes, stop=pipeline.close)


def check_pool(plan: RunPlan) -> None:
    """Raises UsageError if the actor pool cannot have these sizes or reach its servers."""
    from torchbeast.servers.addresses import check_basenames, check_tls

    config, servers = plan.config, plan.config.servers
    if config.learner_queue_size < config.learning.batch_size:
        raise UsageError("--max_learner_queue_size must be at least --batch_size")
    check_tls(servers.tls_dir)
    if servers.pipes_basename is not None:
        if servers.start_servers and "," in servers.pipes_basename:
            raise UsageError("--pipes_basename of several hosts needs --no_start_servers")
        check_basenames(
            servers.pipes_basename, len(plan.servers), len(config.games), servers.tls_dir
        )
        directory = plan.directory.resolve()
        for name in servers.pipes_basename.split(","):
            # The learner holds the lock of this directory, which a server needs to bind a socket.
            if (
                name.startswith("unix:")
                and Path(name.removeprefix("unix:")).parent.resolve() == directory
            ):
                raise UsageError(f"--pipes_basename {name}: it must not be in the run's directory")
    elif not servers.start_servers:
        raise UsageError("--no_start_servers needs --pipes_basename: where the servers are")


@contextlib.contextmanager
def start_servers(plan: RunPlan, basename: str, seed: int) -> Iterator[Callable[[], None]]:
    """Runs the environment servers, unless the user runs them.

    Yields:
        A function that raises RunError if the servers are gone for good.
    """
    from torchbeast.servers.addresses import EnvServers

    config = plan.config
    if not config.servers.start_servers:
        yield lambda: None
        return
    tls_dir = config.servers.tls_dir
    arguments = [
        f"--env={','.join(config.games)}",
        *(
            f"--{name}={value}"
            for name, value in config.observation._asdict().items()
            if name != "emulator_gray"  # Whatever trains sees the right pictures.
        ),
        f"--seed={seed}",
        f"--step_timeout_s={config.step_timeout_s}",
        *(["--full_action_space"] if plan.full_action_space else []),
        *([f"--tls_dir={tls_dir}"] if tls_dir else []),
    ]
    is_private = config.servers.pipes_basename is None
    with EnvServers(basename, len(plan.servers), is_private, arguments) as servers:
        yield servers.check


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    parser = make_parser()
    flags = parser.parse_args(argv)

    def train_from_flags(signals: StopSignals) -> int:
        from torchbeast.train import TrainingConfig

        return train(TrainingConfig.from_flags(vars(flags)), signals)

    return play.run_mode("polybeast", flags, parser.given(argv), train_from_flags)


if __name__ == "__main__":
    sys.exit(main())
