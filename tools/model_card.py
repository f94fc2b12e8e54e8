"""Writes the cards of shipped agents: ``python tools/model_card.py models/Pong ...``.

A card is the README.md of an agent: games, recipe, scores over full games, learning curve. Its
games are played once and kept in evaluation.json. notes.md beside the card becomes a part of it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from matplotlib.ticker import EngFormatter

from torchbeast.analysis import aggregates
from torchbeast.analysis.groups import IGNORED_FLAGS
from torchbeast.analysis.panels import make_panels, save_figure
from torchbeast.analysis.plot_runs import draw_curve
from torchbeast.analysis.runs import RunRecords
from torchbeast.cli.command import run_command
from torchbeast.cli.training_flags import POPART_FLAGS
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.envs.human_scores import find_reference, human_normalized
from torchbeast.play.agents import read_agent
from torchbeast.play.game_loop import play
from torchbeast.polybeast import make_parser
from torchbeast.records import run_files
from torchbeast.records.csv_tables import Table
from torchbeast.records.scores import POLICIES
from torchbeast.runtime.text import human_return
from torchbeast.runtime.threads import available_cores

EPISODES = 30  # Full games of each game and policy.
MANY_GAMES = 20  # From so many games on a third will do.
SEED = 100  # For the games; training begins with other ones.
NETWORKS = {"resnet": "IMPALA ResNet", "atari": "shallow CNN", "aaa": "attention-augmented agent"}
# By game and policy: the returns of full games.
Returns = dict[str, dict[str, list[float]]]

INTRODUCTION = (
    "Mean return of {count} full games per game (`--mode test --sample --num_episodes {count} "
    "--seed {seed}`). Brackets are 95 % bootstrap intervals over these games. They say nothing "
    "about other seeds of training. 0 % is a random agent, 100 % a professional games tester "
    "(Wang et al. 2016, arXiv:1511.06581). Greedy play repeats games: `different` counts the "
    "returns that differ."
)


def play_games(agent: Path, count: int, game: str, policy: str) -> list[float]:
    """Returns of an agent's full games. Runs in a process of its own."""
    torch.set_num_threads(1)
    trained = read_agent(agent)
    episodes = play(trained, game, count, greedy=policy == "greedy", seed=SEED)
    return [episode.episode_return for episode in episodes]


def evaluate(agent: Path) -> Returns:
    """Returns the games in evaluation.json. An agent of other steps plays them first."""
    path = agent / "evaluation.json"
    trained = read_agent(agent)
    if path.exists():
        known = json.loads(path.read_text())
        if (known["model"], known["seed"]) == (trained.model_id, SEED):
            games: Returns = known["games"]
            return games
    tasks = trained.agent.config.tasks
    count = EPISODES if len(tasks) < MANY_GAMES else EPISODES // 3
    with ProcessPoolExecutor(available_cores(), get_context("spawn")) as pool:
        jobs = [(game, policy) for game in tasks for policy in POLICIES]
        played = pool.map(partial(play_games, agent, count), *zip(*jobs, strict=True))
        games = {game: {} for game in tasks}
        for (game, policy), returns in zip(jobs, played, strict=True):
            games[game][policy] = returns
    document = {"model": trained.model_id, "seed": SEED, "games": games}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return games


def format_mean(values: list[float], scale: float = 1.0) -> str:
    """Formats a mean with its interval: ``3.1 [2.9, 3.3]``."""
    array = scale * np.array(values)
    text = human_return(float(array.mean()))
    interval = aggregates.bootstrap(array[None], aggregates.mean)
    if interval is None:
        return text
    return f"{text} [{human_return(interval.low)}, {human_return(interval.high)}]"


def format_scores(games: Returns) -> str:
    """Returns the table of scores, a row for each game."""
    header = ["game", "sampled", "random", "human", "% of human", "greedy", "different"]
    rows = [header, ["---"] * len(header)]
    for game, returns in games.items():
        reference, greedy = find_reference(game), returns["greedy"]
        shares = [human_normalized(game, value) for value in returns["sampled"]]
        known = [x for x in shares if x is not None]
        row = [
            short_name(game),
            format_mean(returns["sampled"]),
            *("" if x is None else human_return(x) for x in (reference.random, reference.human)),
            format_mean(known, 100) if known else "",
            human_return(float(np.mean(greedy))),
            str(len(set(greedy))),
        ]
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def format_command(args: dict[str, Any], name: str) -> str:
    """Returns the command line that trains such an agent, without flags that have defaults."""
    preset = args.get("preset", "default")
    defaults = vars(make_parser().parse_args([f"--preset={preset}"]))
    if not args.get("use_popart"):
        args = {flag: value for flag, value in args.items() if flag not in POPART_FLAGS}
    parts = ["python -m torchbeast.polybeast", f"--preset {preset}"]
    left_out = (IGNORED_FLAGS - {"seed", "save_model_every_nsteps"}) | {"cores", "preset"}
    for flag, value in args.items():
        if flag in left_out or flag not in defaults:
            continue
        if value not in (None, defaults[flag]) and value is not False:
            parts.append(f"--{flag}" if value is True else f"--{flag} {shlex.quote(str(value))}")
    return " ".join([*parts, f"--xpid {name}"])


def format_facts(agent: Path, meta: dict[str, Any]) -> str:
    """Returns the table of how the agent was trained."""
    args, versions = meta["args"], meta.get("versions", {})
    row = Table(agent / "logs.csv").rows[-1]
    steps, hours = int(row["step"]), float(row["seconds"]) / 3600
    copies = ", ".join(f"{step:,}" for step in run_files.intermediate_paths(agent))
    clipped = meta.get("reward_clipping") != "none"
    heads = " and one PopArt value head per game" if args.get("use_popart") else ""
    facts = {
        "network": NETWORKS.get(args["agent_type"], args["agent_type"]) + heads,
        "games": ", ".join(map(short_name, meta["tasks"])) + f"; {meta['num_actions']} actions",
        "rewards": "clipped to [-1, 1]" if clipped else "as the games pay",
        "steps": f"{steps:,} agent steps in all games, {4 * steps / 1e6:.1f} million frames",
        "time": f"{hours:.1f} hours",
        "seed": str(meta["seed"]),
        "program": f"git {meta.get('git')}; torch {versions.get('torch')}, ale-py "
        f"{versions.get('ale-py')}",
        "`model.tar`": "weights in half precision, no optimizer",
        "`intermediate/`": f"the filters alone, after {copies} steps" if copies else "",
    }
    lines = [f"| {name} | {text} |" for name, text in facts.items() if text]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def draw_curve_of(agent: Path) -> None:
    """Draws curve.png: the mean return of the last hundred games, a panel for each game."""
    run = RunRecords(agent)
    curves = {game: run.curve(game) for game in run.games}
    figure, panels = make_panels(list(curves), width=2.6, height=1.9)
    for panel, curve in zip(panels, curves.values(), strict=True):
        draw_curve(panel, curve.steps, curve)
        panel.xaxis.set_major_formatter(EngFormatter())
    panels[0].set_ylabel("return")
    figure.supxlabel("agent steps in all games", fontsize="medium")
    save_figure(figure, agent / "curve.png")


def write_card(agent: Path) -> Path:
    """Writes the card of a shipped agent, and its curve. Raises UsageError if a file is missing."""
    for name in ("model.tar", "meta.json", "logs.csv"):
        if not (agent / name).exists():
            raise UsageError(f"{agent} has no {name}")
    meta = json.loads((agent / "meta.json").read_text())
    notes = agent / "notes.md"
    draw_curve_of(agent)
    games = evaluate(agent)
    count = min(len(returns["sampled"]) for returns in games.values())
    parts = [
        f"# {agent.name}",
        "<!-- Written by tools/model_card.py: changes are lost. -->",
        "    " + format_command(meta["args"], agent.name),
        format_facts(agent, meta),
        *([notes.read_text().strip()] if notes.exists() else []),
        "## Scores",
        format_scores(games),
        INTRODUCTION.format(count=count, seed=SEED),
        "## Training",
        "Mean return of the last 100 full games, whose actions are sampled; the band is their "
        "standard deviation:",
        f"![Learning curve of {agent.name}](curve.png)",
    ]
    path = agent / "README.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agents", nargs="+", type=Path, metavar="DIR", help="such as models/Pong")
    flags = parser.parse_args()

    def work(_: object) -> None:
        for agent in flags.agents:
            print(write_card(agent.absolute()))

    return run_command("model_card", work)


if __name__ == "__main__":
    sys.exit(main())
