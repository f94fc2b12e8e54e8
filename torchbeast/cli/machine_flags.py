"""The flags of cores, threads and processes: machine, actor pool, environment servers."""

from __future__ import annotations

import argparse

from torchbeast.cli.parsing import positive
from torchbeast.runtime.allocation import DEFAULT_NUM_ACTORS


def add_server_flags(
    parser: argparse.ArgumentParser, default_basename: str = "a private directory of the run"
) -> argparse._ArgumentGroup:
    """Adds how actor pool and servers find each other. Returns the group, for more."""
    group = parser.add_argument_group("environment servers")
    group.add_argument(
        "--pipes_basename",
        help="Address of the servers. Server i listens on unix:/path.i, or on host:port with i "
        "added to the port. With --no_start_servers: of several hosts, separated by commas, each "
        f"with an equal part of --num_servers. (default: {default_basename})",
    )
    group.add_argument(
        "--num_servers",
        type=positive,
        help="Server processes. (default: about one per core, equally many for each game)",
    )
    group.add_argument(
        "--tls_dir",
        help="Directory with cert.pem, key.pem and root.pem; needed for servers on other machines. "
        "(default: no encryption, this machine only)",
    )
    return group


def add_machine_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds how the machine is used. Returns the group, for more."""
    group = parser.add_argument_group("machine")
    add = group.add_argument
    add(
        "--game_weights",
        help="Divide the environments unequally among the games: Pong=2,Breakout=1 gives Pong "
        "twice as many. A game that is not named has the weight 1. (default: equal shares)",
    )
    add(
        "--num_learner_threads",
        "--num_threads",
        type=positive,
        help="Threads that compute gradients. (default: chosen by the number of cores)",
    )
    add("--cores", type=positive, help="Cores to use. (default: all that this process may use)")
    add("--disable_cuda", action="store_true", help="Do not use a GPU.")
    add(
        "--precision",
        choices=["auto", "float32", "bfloat16"],
        default="auto",
        help="Precision of the convolutions. auto: bfloat16 where the hardware has it, else "
        "float32. (default: %(default)s)",
    )
    return group


def add_failure_flags(group: argparse._ArgumentGroup) -> None:
    """Adds how often environments may fail."""
    group.add_argument(
        "--max_environment_failures",
        type=positive,
        default=3,
        help="The run ends at this number of exceptions of one environment within ten "
        "minutes. In PolyBeast also at this number of one server's protocol errors. "
        "(default: %(default)s)",
    )


def add_pool_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how the actor pool feeds inference and learner."""
    group = parser.add_argument_group("actor pool")
    add = group.add_argument
    add(
        "--num_actors",
        type=positive,
        help=f"Environments that run in parallel. (default: {DEFAULT_NUM_ACTORS}, rounded up so "
        "that the games have equal shares, or those of --game_weights)",
    )
    add(
        "--num_inference_threads",
        type=positive,
        help="Threads that compute actions. (default: chosen by the number of cores)",
    )
    add(
        "--max_learner_queue_size",
        type=positive,
        help="Most rollouts that wait for the learner. (default: --batch_size)",
    )
    add_failure_flags(group)
    add(
        "--synchronous",
        action="store_true",
        help="Wait with each action until the learner has learned from all earlier rollouts. "
        "Together with --num_actors 1, --num_learner_threads 1 and --seed a run repeats bit for "
        "bit.",
    )
