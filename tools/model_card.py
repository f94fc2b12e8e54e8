"""Writes the cards of shipped agents: ``python tools/model_card.py models/Pong ...``.

A card is the README.md of an agent. It has the agent's games and recipe, its steps and hours, its
scores over full games, its learning curve and a frame. The games are played once and kept in
evaluation.json; without that file, or with another --episodes or --seed, they are played anew. The
text of notes.md beside the card, if there is one, becomes a part of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from tools.shipped import pictures, scoring
from tools.shipped.card import format_card, read_facts
from tools.shipped.records import check_files
from torchbeast.analysis.runs import RunRecords
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import natural, positive


def write(agent: Path, episodes: int = scoring.EPISODES, seed: int = scoring.SEED) -> Path:
    """Writes the card of a shipped agent, and its pictures. Equal inputs give equal files.

    Args:
        agent: the agent's directory, as tools/ship.py makes it.
        episodes: full games per game and kind of action.
        seed: of these games.

    Returns:
        The path of the card.

    Raises:
        UsageError: it is no directory of an agent, or a file in it is damaged.
    """
    check_files(agent)
    # As in --mode test: a second thread gains little here, and on a busy machine it costs.
    torch.set_num_threads(1)
    evaluation = scoring.evaluate(agent, episodes, seed)
    drawn = {
        "curve.png": pictures.draw_learning_curve(RunRecords(agent), agent / "curve.png"),
        "frame.png": pictures.draw_frames(agent, agent / "frame.png", seed),
    }
    names = [name for name, is_drawn in drawn.items() if is_drawn]
    path = agent / "README.md"
    path.write_text(format_card(read_facts(agent), evaluation, names))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agents", nargs="+", type=Path, metavar="DIR", help="such as models/Pong")
    parser.add_argument(
        "--episodes",
        type=positive,
        default=scoring.EPISODES,
        help="full games per game and kind of action (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=natural, default=scoring.SEED, help="of the games (default: %(default)s)"
    )
    flags = parser.parse_args()

    def work(_: object) -> None:
        for agent in flags.agents:
            print(write(agent.absolute(), flags.episodes, flags.seed))

    return run_command("model_card", work)


if __name__ == "__main__":
    sys.exit(main())
