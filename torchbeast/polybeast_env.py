"""Environment servers: ``python -m torchbeast.polybeast_env``.

A supervisor starts a process per server, restarts those that die and takes all down with it.
PolyBeast has servers of its own; start these for ``polybeast --no_start_servers``.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser
from torchbeast.cli.training_flags import add_server_flags
from torchbeast.core.types import UsageError
from torchbeast.runtime.allocation import default_num_servers
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.text import counted
from torchbeast.runtime.workers import raise_file_limit
from torchbeast.servers.addresses import check_basename, check_compiled, load_tls
from torchbeast.servers.supervisor import OwnServers, ServedGames


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``python -m torchbeast.polybeast_env``."""
    parser = Parser("polybeast_env", "Serves environments to `polybeast --no_start_servers`.")
    flags_lib.add_env_flags(
        parser,
        seed_help="Seed of the environments. Machines with the same seed play the same games. "
        "(default: a new one)",
    )
    group = add_server_flags(parser, default_basename="%(default)s")
    group.set_defaults(pipes_basename="unix:/tmp/polybeast")
    group.add_argument(
        "--full_action_space",
        action="store_true",
        help="Accepted as in 2019, without effect: all 18 actions are offered where the games of "
        "--env have different ones.",
    )
    group.add_argument(
        "--multitask",
        action="store_true",
        help="Accepted as in 2019, without effect: every server says which game it plays.",
    )
    return parser


def plan_servers(flags: argparse.Namespace) -> OwnServers:
    """Plans the servers that the flags ask for.

    Raises:
        UsageError: the flags contradict each other or the games.
        RunError: a custom environment failed when it was made.
    """
    from torchbeast.cli.config import build
    from torchbeast.core.types import ObservationConfig
    from torchbeast.envs import parse_games, plan_envs
    from torchbeast.runtime.threads import available_cores

    games = parse_games(flags_lib.DEFAULT_ENV if flags.env is None else flags.env)
    cores = available_cores()  # A learner on as many expects no more servers by default.
    num_servers = flags.num_servers or default_num_servers(cores, [cores] * len(games))
    if num_servers < len(games):
        raise UsageError(f"{len(games)} games need at least as many servers, not {num_servers}")
    observation = build(ObservationConfig, vars(flags))
    full_action_space = plan_envs(games, observation, flags.step_timeout_s).full_action_space
    check_basename(flags.pipes_basename, num_servers, flags.tls_dir)
    tls = load_tls(flags.tls_dir)
    seed = flags.seed if flags.seed is not None else secrets.randbits(32)
    return OwnServers(
        ServedGames(games, observation, full_action_space, seed, flags.step_timeout_s),
        num_servers,
        flags.pipes_basename,
        tls,
    )


def supervise(servers: OwnServers, signals: StopSignals) -> None:
    """Runs the servers until a signal comes. Raises RunError if they cannot run."""
    raise_file_limit()
    with servers:
        first, last = servers.addresses[0], servers.addresses[-1]
        addresses = first if first == last else f"{first} to {last}"
        count = counted(len(servers.addresses), "environment server")
        print(f"Starting {count} on {addresses}", flush=True)
        while signals.received is None:
            servers.replace_ended(timeout=0.5)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)

    def work(signals: StopSignals) -> None:
        check_compiled()
        servers = plan_servers(flags)
        with signals:  # Not before: a custom environment may hang.
            supervise(servers, signals)

    return run_command("polybeast_env", work)


if __name__ == "__main__":
    sys.exit(main())
