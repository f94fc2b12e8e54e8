"""How often agents choose each action: ``python -m torchbeast.analysis.action_shares AGENT ...``.

Agents play the same games side by side, with sampled actions as in training. Writes
action_shares.csv and action_shares.png.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchbeast.analysis.aggregates import percentiles, resample_means
from torchbeast.analysis.panels import make_panels, save_panels
from torchbeast.analysis.results import make_directory, write_table
from torchbeast.cli.command import run_command
from torchbeast.cli.flags import add_custom_agent_flag
from torchbeast.cli.parsing import Parser, named_paths, positive, seed
from torchbeast.core.types import UsageError

if TYPE_CHECKING:
    from torchbeast.evaluate.trained import Trained

HEADER = ("agent", "model", "game", "action", "share", "low", "high", "entropy")


class ActionShares(NamedTuple):
    """What one agent does in one game."""

    agent: str
    model: str
    """Agent steps that it was trained for."""
    game: str
    names: tuple[str, ...]
    """Of the actions, such as FIRE."""
    shares: np.ndarray
    """``[A, N]``, the share of each action in each of N environments; a column adds up to 1."""
    entropy: float
    """Mean entropy of the policy, in nats."""

    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Both ends ``[A]`` of the 95 % bootstrap intervals of the mean shares, over
        environments.
        """
        return percentiles(resample_means(self.shares))


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``python -m torchbeast.analysis.action_shares``."""
    parser = Parser("analysis.action_shares", "Shows how often agents choose each action.")
    add = parser.add_argument
    add(
        "agents",
        nargs="+",
        type=named_paths,
        metavar="[NAME=]AGENT[,AGENT...]",
        help="Directory with a model.tar, or a checkpoint. With NAME= these agents share a name "
        "and a colour in the figure, such as agents of one game each.",
    )
    add_custom_agent_flag(parser)
    add("--games", help="Games, separated by commas. (default: all that an agent knows)")
    add("--num_steps", type=positive, default=500, help="Agent steps. (default: %(default)s)")
    add(
        "--num_envs",
        type=positive,
        default=8,
        help="Environments of a game, played side by side for --num_steps each. "
        "(default: %(default)s)",
    )
    add("--seed", type=seed, default=0, help="Of games and actions. (default: %(default)s)")
    add(
        "--save_dir",
        type=Path,
        default=Path("action_shares"),
        help="Directory for action_shares.csv and action_shares.png. (default: %(default)s)",
    )
    return parser


def count_actions(
    trained: Trained, game: str, *, num_steps: int, num_envs: int, seed: int = 0
) -> ActionShares:
    """Counts the actions that an agent samples in a game.

    Args:
        trained: the agent.
        game: id of the game.
        num_steps: agent steps in each environment. A game that ends begins anew.
        num_envs: environments side by side.
        seed: of games and actions.

    Raises:
        UsageError: the game's pictures or actions are not what the agent knows.
    """
    from torch.distributions import Categorical

    from torchbeast.envs.games import short_name
    from torchbeast.envs.info import name_actions
    from torchbeast.evaluate.playing import GameLoop, open_games

    with open_games(trained, game, num_envs, seed=seed) as envs:
        names = name_actions(envs[0])
        loop = GameLoop(trained, game, envs, greedy=False, seed=seed)
        counts = np.zeros((len(names), num_envs))
        entropy = 0.0
        for _ in range(num_steps):
            loop.step()
            counts[loop.last_actions, np.arange(num_envs)] += 1
            entropy += float(Categorical(logits=loop.output.policy_logits).entropy().mean())
    return ActionShares(
        trained.xpid,
        trained.model_id,
        short_name(game),
        tuple(names),
        counts / num_steps,
        entropy / num_steps,
    )


def choose_pairs(players: Sequence[Trained], games: str | None) -> list[tuple[Trained, str]]:
    """Pairs agents with the games that they know; of these with those that ``games`` lists.

    Raises UsageError if no agent knows one of the listed games.
    """
    from torchbeast.envs.games import parse_games, short_name
    from torchbeast.evaluate.trained import allow

    known = [(player, game) for player in players for game in player.agent.config.tasks]
    if games is None:
        allow(tuple(game for _, game in known), "--games")
        return known
    chosen = {short_name(game): game for game in parse_games(games)}
    missing = chosen.keys() - {short_name(game) for _, game in known}
    if missing:
        raise UsageError(f"No agent knows {', '.join(sorted(missing))}")
    names = ((player, short_name(game)) for player, game in known)
    return [(player, chosen[name]) for player, name in names if name in chosen]


def save(measured: Sequence[ActionShares], directory: Path, names: Mapping[str, str]) -> list[Path]:
    """Writes ``action_shares.csv`` and ``action_shares.png`` into a directory that exists.

    Args:
        measured: of each agent in each game.
        directory: of the files.
        names: by agent, what it is called in the figure.

    Returns:
        The paths of the files.
    """
    table, picture = (directory / f"action_shares.{kind}" for kind in ("csv", "png"))
    write_table(table, HEADER, (row for shares in measured for row in _rows(shares)))
    return [table, save_panels(draw(measured, names), picture)]


def _rows(shares: ActionShares) -> list[tuple[Any, ...]]:
    numbers = zip(shares.shares.mean(axis=1), *shares.intervals(), strict=True)
    return [
        (
            *(shares.agent, shares.model, shares.game, name),
            *(f"{number:.4f}" for number in (*row, shares.entropy)),
        )
        for name, row in zip(shares.names, numbers, strict=True)
    ]


def draw(measured: Sequence[ActionShares], names: Mapping[str, str]) -> Any:
    """Draws a panel per game, with a group of bars per action and a bar per agent in it.

    Agents of one name in ``names``, by agent, have one colour.
    """
    import matplotlib

    matplotlib.use("Agg")
    games = list(dict.fromkeys(shares.game for shares in measured))
    labels = list(dict.fromkeys(names[shares.agent] for shares in measured))
    figure, panels = make_panels(
        games,
        "Share of each action, sampled from the policy; 95 % intervals over environments",
    )
    for panel, game in zip(panels, games, strict=True):
        players = [shares for shares in measured if shares.game == game]
        actions = max((shares.names for shares in players), key=len)
        for i, shares in enumerate(players):
            # Agents of several games may have all 18 actions, of which a game has some.
            place = np.array([actions.index(name) for name in shares.names])
            height = 0.8 / len(players)
            mean, (low, high) = shares.shares.mean(axis=1), shares.intervals()
            panel.barh(
                place + (i - (len(players) - 1) / 2) * height,
                mean,
                height,
                xerr=np.clip([mean - low, high - mean], 0, None),
                error_kw={"lw": 0.8},
                color=f"C{labels.index(names[shares.agent])}",
                label=names[shares.agent],
            )
        panel.set_yticks(range(len(actions)), actions, fontsize="small")
        panel.invert_yaxis()
        panel.set_xlim(0, None)
    return figure


def run(flags: argparse.Namespace) -> list[Path]:
    """Measures and writes; returns the paths of the files. Raises UsageError."""
    from torchbeast.evaluate.trained import read_agents

    paths = (path for given in flags.agents for path in given.paths)
    players = read_agents(*paths, agent_type=flags.agent_type)
    given = [name for name, paths in flags.agents for _ in paths]
    names = {p.xpid: name or p.xpid for p, name in zip(players, given, strict=True)}
    pairs = choose_pairs(players, flags.games)
    directory = flags.save_dir.expanduser()
    make_directory(directory)  # Before the games are played.
    measured = []
    for player, game in pairs:
        shares = count_actions(
            player, game, num_steps=flags.num_steps, num_envs=flags.num_envs, seed=flags.seed
        )
        mean = shares.shares.mean(axis=1)
        most = ", ".join(f"{shares.names[i]} {mean[i]:.0%}" for i in np.argsort(-mean)[:3])
        print(f"{shares.agent} in {shares.game}: {most}; entropy {shares.entropy:.2f} nats")
        measured.append(shares)
    return save(measured, directory, names)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)
    return run_command("action_shares", lambda _: print(*run(flags), sep="\n"))


if __name__ == "__main__":
    sys.exit(main())
