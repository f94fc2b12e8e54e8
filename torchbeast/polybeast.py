"""PolyBeast: ``python -m torchbeast.polybeast``. Flags, then wiring.

Environment servers step games; the actor pool streams their observations to inference threads and
whole rollouts to learner threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from typing import TYPE_CHECKING

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.parsing import Parser
from torchbeast.cli.training_flags import add_pool_flags, add_server_flags
from torchbeast.core.types import UsageError
from torchbeast.modes import run_mode
from torchbeast.runtime.signals import StopSignals

if TYPE_CHECKING:
    from torchbeast.models import Agent
    from torchbeast.servers.sources import ServerSource
    from torchbeast.train import RunPlan, TrainingConfig


def make_parser() -> Parser:
    """Builds the parser of ``python -m torchbeast.polybeast``."""
    parser = Parser(
        "polybeast", "Trains and tests agents on one or many Atari games.", flags_lib.SHOWN_FLAGS
    )
    flags_lib.add_training_flags(parser)
    add_pool_flags(parser)
    group = add_server_flags(
        parser,
        "a private directory of the run",
        " With --no_start_servers: of several hosts, separated by commas, each with an equal part "
        "of --num_servers.",
    )
    group.add_argument("--start_servers", action="store_true", default=True, help=argparse.SUPPRESS)
    group.add_argument(
        "--no_start_servers",
        dest="start_servers",
        action="store_false",
        help="Connect to servers that run already, started with torchbeast.polybeast_env.",
    )
    group.add_argument(
        "--ray_address",
        metavar="HOST:PORT|auto",
        help="Run the servers on the machines of a Ray cluster, of which this machine is one; "
        "--num_servers is how many. auto: the cluster that Ray has been started for here. "
        "(default: servers on this machine)",
    )
    flags_lib.add_test_flags(parser)
    return parser


def train(flags: argparse.Namespace, signals: StopSignals) -> None:
    """Trains until --total_steps or a signal."""
    from torchbeast.servers.addresses import check_compiled
    from torchbeast.train import TrainingConfig, TrainingRun, make_plan, open_run
    from torchbeast.train.polybeast_pipeline import Pipeline
    from torchbeast.train.published_weights import PublishedWeights

    check_compiled()
    plan = make_plan(TrainingConfig.from_flags(vars(flags)))
    check_pool(plan)

    def make_weights(agent: Agent) -> PublishedWeights:
        return PublishedWeights(
            lambda: agent.inference_copy().to(plan.devices.inference),
            plan.threads.inference_threads,
        )

    with open_run(plan) as plan, TrainingRun(plan, signals, make_weights) as run:
        with find_servers(plan, run.own_seed) as servers:
            pipeline = Pipeline(plan, run, servers)
            pipeline.start()
            run.supervise(check=pipeline.check, queues=pipeline.sizes, stop=pipeline.close)
        run.finish()


def check_pool(plan: RunPlan) -> None:
    """Raises UsageError if the actor pool cannot have these sizes or reach its servers."""
    from torchbeast.servers.addresses import check_basenames, load_tls

    config, servers = plan.config, plan.config.servers
    if config.learner_queue_size < config.learning.batch_size:
        raise UsageError("--max_learner_queue_size must be at least --batch_size")
    if servers.ray_address is not None:
        check_ray(config)
        return
    load_tls(servers.tls_dir)
    if servers.pipes_basename is not None:
        if servers.start_servers and "," in servers.pipes_basename:
            raise UsageError("--pipes_basename of several hosts needs --no_start_servers")
        check_basenames(
            servers.pipes_basename, len(plan.servers), len(config.games), servers.tls_dir
        )
    elif not servers.start_servers:
        raise UsageError("--no_start_servers needs --pipes_basename: where the servers are")


def check_ray(config: TrainingConfig) -> None:
    """Raises UsageError if the servers cannot be on a Ray cluster."""
    servers = config.servers
    others = {
        "--pipes_basename": servers.pipes_basename is not None,
        "--tls_dir": servers.tls_dir is not None,
        "--no_start_servers": not servers.start_servers,
    }
    for flag in (flag for flag, is_given in others.items() if is_given):
        raise UsageError(f"--ray_address excludes {flag}: Ray finds and starts the servers")
    address = str(servers.ray_address)
    if re.fullmatch(r"auto|[^/]+:\d+", address) is None:
        raise UsageError(f"--ray_address must be HOST:PORT of the cluster or auto, not {address}")
    if servers.num_servers is None:
        raise UsageError("--ray_address needs --num_servers: each has a CPU of the cluster")
    for package in ("ray", "cryptography"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"--ray_address needs the package {package}: "
                "pip install 'ray[default]' cryptography"
            )


def find_servers(plan: RunPlan, seed: int) -> ServerSource:
    """Returns where the run's environment servers come from, for a ``with`` statement."""
    from torchbeast.servers.addresses import load_tls, server_addresses
    from torchbeast.servers.sources import ServerSource
    from torchbeast.servers.supervisor import OwnServers, ServedGames

    config, servers = plan.config, plan.config.servers
    served = ServedGames(
        games=config.games,
        observation=config.observation,
        full_action_space=plan.full_action_space,
        seed=seed,
        step_timeout_s=config.step_timeout_s,
    )
    if servers.ray_address is not None:
        from torchbeast.servers.cluster import ClusterConfig, RayServers

        log_file = str(plan.directory / "ray.log")
        return RayServers(ClusterConfig(servers.ray_address, served, plan.servers, log_file))
    tls = load_tls(servers.tls_dir)
    if not servers.start_servers:
        assert servers.pipes_basename is not None
        basenames = servers.pipes_basename.split(",")
        return ServerSource(server_addresses(basenames, len(plan.servers)), tls)
    return OwnServers(served, len(plan.servers), servers.pipes_basename, tls)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    return run_mode("polybeast", make_parser(), argv, train)


if __name__ == "__main__":
    sys.exit(main())
