"""Writes tables of shipped agents in Markdown, for the pages of the documentation.

    python tools/agent_tables.py agents models/Pong models/MultiTask --output agents.md
    python tools/agent_tables.py scores "one game=models/Pong,models/AirRaid" models/MultiTask \
        --output scores.md
    python tools/agent_tables.py curves "one game=models/Pong,models/AirRaid" models/MultiTask \
        --at 500000 1000000 --output curves.md

``agents`` has how agents were trained. ``scores`` has full games (evaluation.json). ``curves`` has
the mean returns of training at equal steps, beside references. Both have a column per kind of
agent.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.shipped import card, tables
from tools.shipped.records import check_files
from torchbeast.analysis.runs import RunRecords, read_references
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import named_paths, positive
from torchbeast.envs import parse_games
from torchbeast.envs.games import short_name
from torchbeast.records.scores import POLICIES


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    commands = parser.add_subparsers(dest="table", required=True)
    agents = commands.add_parser("agents", allow_abbrev=False, help="how they were trained")
    agents.add_argument("agents", nargs="+", type=Path, metavar="DIR")
    scores = commands.add_parser("scores", allow_abbrev=False, help="full games, side by side")
    scores.add_argument("kinds", nargs="+", type=named_paths, metavar="[NAME=]DIR[,DIR...]")
    scores.add_argument("--policy", choices=POLICIES, default="sampled", help="of the actions")
    scores.add_argument("--games", help="separated by commas (default: all)")
    scores.add_argument(
        "--difference", nargs=2, metavar="NAME", help="two columns, to show their difference"
    )
    curves = commands.add_parser("curves", allow_abbrev=False, help="training, at equal steps")
    curves.add_argument("kinds", nargs="+", type=named_paths, metavar="[NAME=]DIR[,DIR...]")
    curves.add_argument(
        "--count",
        choices=["game", "all"],
        default="game",
        help="steps in the game of a row, or in all games of an agent (default: %(default)s)",
    )
    curves.add_argument("--at", nargs="+", type=positive, required=True, metavar="STEPS")
    curves.add_argument(
        "--reference",
        type=Path,
        action="append",
        help="curves of agents of one game to compare with; may be given several times",
    )
    for command in (agents, scores, curves):
        command.add_argument("--output", type=Path, required=True, metavar="FILE")
    return parser


def read_agent(path: Path) -> card.Facts:
    """Reads how a shipped agent was trained. Raises UsageError."""
    check_files(path)
    return card.read_facts(path)


def make_table(flags: argparse.Namespace) -> str:
    """Returns the table that was asked for. Raises UsageError."""
    if flags.table == "agents":
        return tables.format_agents([read_agent(path) for path in flags.agents])
    if flags.table == "curves":
        groups = [
            tables.make_group(name or paths[0].name, [RunRecords(path) for path in paths])
            for name, paths in flags.kinds
        ]
        references = read_references(flags.reference or ())
        return tables.format_curves(groups, references, flags.at, flags.count)
    columns = [
        tables.make_column(name or agents[0].name, tables.read_evaluations(agents), flags.policy)
        for name, agents in flags.kinds
    ]
    if flags.games is not None:
        games = [short_name(game) for game in parse_games(flags.games)]
        columns = [tables.choose_games(column, games) for column in columns]
    return tables.format_scores(columns, tuple(flags.difference) if flags.difference else None)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)

    def work(_: object) -> None:
        table = make_table(flags) + "\n"
        flags.output.write_text(table)
        print(table, end="")

    return run_command("agent_tables", work)


if __name__ == "__main__":
    sys.exit(main())
