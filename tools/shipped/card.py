"""The card of a shipped agent, models/NAME/README.md: one format for all, all of it generated.

What only people know about an agent is in notes.md beside the card, which has it as a paragraph.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.shipped.plan import parse
from tools.shipped.records import Slice, last_row, read_slices
from tools.shipped.scoring import Evaluation, Score
from torchbeast.analysis.groups import IGNORED_FLAGS
from torchbeast.envs.games import parse_game_weights, short_name
from torchbeast.envs.scores import find_reference
from torchbeast.records import checkpoint, run_files
from torchbeast.runtime.allocation import default_num_actors
from torchbeast.runtime.text import counted, human_return

NETWORKS = {
    "resnet": "IMPALA ResNet (`--agent_type resnet`)",
    "atari": "shallow CNN (`--agent_type atari`)",
    "aaa": "attention-augmented agent (`--agent_type aaa`)",
}
# Without effect unless the agent uses PopArt.
POPART_FLAGS = {"beta", "beta_per", "sigma_floor"}
FRAMES_PER_STEP = 4
NOTES = "notes.md"
GENERATED = "<!-- Written by tools/model_card.py: changes are lost. -->"


class Facts(NamedTuple):
    """What the files of a shipped agent say about it."""

    name: str
    meta: dict[str, Any]
    steps: int
    """Agent steps that it was trained for, in all games."""
    seconds: float
    """Time of training."""
    slices: tuple[Slice, ...]
    intermediate: tuple[int, ...]
    """Agent steps of the intermediate checkpoints."""
    tables: tuple[str, ...]
    """Names of the tables beside the card."""
    has_mean_picture: bool
    """Whether each pixel has a mean of its own, which is subtracted from the frames."""
    notes: str
    """What people wrote about it, in Markdown; empty for most."""

    @property
    def args(self) -> dict[str, Any]:
        """The values of all flags."""
        args: dict[str, Any] = self.meta["args"]
        return args


def read_facts(agent: Path) -> Facts:
    """Reads the files of a shipped agent."""
    row = last_row(agent / "logs.csv")
    weights = checkpoint.load(agent / "model.tar")["model_state_dict"]
    notes = agent / NOTES
    tables = ("logs.csv", "scores.csv", "slices.csv", "evaluation.json")
    return Facts(
        agent.name,
        json.loads((agent / "meta.json").read_text()),
        int(row["step"]),
        float(row["seconds"]),
        tuple(read_slices(agent)),
        tuple(run_files.intermediate_paths(agent)),
        tuple(name for name in tables if (agent / name).exists()),
        weights["frame_mean"].numel() > 1,
        notes.read_text().strip() if notes.exists() else "",
    )


def format_card(facts: Facts, evaluation: Evaluation, pictures: Sequence[str]) -> str:
    """Returns the text of a card.

    Args:
        facts: the agent.
        evaluation: the full games that it played.
        pictures: names of the picture files beside the card, of curve.png and frame.png.
    """
    parts = [
        f"# {facts.name}",
        GENERATED,
        describe(facts),
        "    " + command(facts),
        *format_new_flags(facts),
        format_facts(facts),
        *filter(None, [facts.notes]),
        "## Scores",
        format_scores(evaluation),
        *format_notes(evaluation),
    ]
    if "curve.png" in pictures:
        parts += [
            "## Training",
            "Mean return of the last 100 full games, whose actions are sampled; the band is their "
            "standard deviation:",
            f"![Learning curve of {facts.name}](curve.png)",
        ]
    if "frame.png" in pictures:
        parts.append(f"![Frames of the games that {facts.name} plays](frame.png)")
    return "\n\n".join(parts) + "\n"


def describe(facts: Facts) -> str:
    """Returns a sentence about the agent."""
    args, games = facts.args, facts.meta["tasks"]
    network = NETWORKS.get(args["agent_type"], f"`{args['agent_type']}`")
    memory = " with an LSTM" if args.get("use_lstm") else ""
    heads = " and one PopArt value head per game" if args.get("use_popart") else ""
    names = list(map(short_name, games))
    what = names[0] if len(names) == 1 else f"{len(names)} games: {', '.join(names)}"
    return f"Network: {network}{memory}{heads}. Trained on {what}."


def command(facts: Facts) -> str:
    """Returns the command line that trains such an agent, without flags that have defaults."""
    args = facts.args
    preset = args.get("preset", "default")
    defaults = vars(parse([f"--preset={preset}"]))
    # It says how fast an agent learned, not what.
    ignored = (IGNORED_FLAGS - {"seed"}) | {"cores"}
    if not args.get("use_popart"):
        ignored |= POPART_FLAGS
    parts = ["python -m torchbeast.polybeast", f"--preset {preset}"]
    for name, value in args.items():
        is_known = name in defaults and name not in ignored
        is_default = value is None or value is False or value == defaults.get(name)
        if name == "preset" or not is_known or is_default:
            continue
        parts.append(f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}")
    return " ".join([*parts, f"--xpid {facts.name}"])


def format_new_flags(facts: Facts) -> list[str]:
    """Returns the paragraph on flags of PopArt that the agent's program did not have yet."""
    missing = sorted(POPART_FLAGS - facts.args.keys()) if facts.args.get("use_popart") else []
    if not missing:
        return []
    names = " and ".join(f"`--{name}`" for name in missing)
    return [
        f"The program that trained this agent had no {names} yet: the command trains with their "
        "defaults ([PopArt](../../docs/popart.md))."
    ]


def format_facts(facts: Facts) -> str:
    """Returns the table of how the agent was trained."""
    versions = facts.meta.get("versions", {})
    program = f"git {facts.meta['git']}" if facts.meta.get("git") else "unknown revision"
    games = ", ".join(f"`{game}`" for game in facts.meta["tasks"])
    steps = ", ".join(f"{step:,}" for step in facts.intermediate)
    rows = {
        "tasks": f"{games}; {facts.meta['num_actions']} actions",
        "frames": format_frames(facts),
        "recipe": format_recipe(facts),
        "steps": format_steps(facts),
        "time": format_time(facts),
        "seed": str(facts.meta["seed"]),
        "program": f"{program}; torch {versions.get('torch', 'unknown')}, "
        f"ale-py {versions.get('ale-py', 'unknown')}",
        "`model.tar`": "weights in half precision, no optimizer",
        "`intermediate/`": f"the same after {steps} steps" if steps else "",
        "tables": ", ".join(f"`{name}`" for name in facts.tables),
    }
    lines = [f"| {name} | {text} |" for name, text in rows.items() if text]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def format_frames(facts: Facts) -> str:
    """Returns what the agent sees."""
    args = facts.args
    size = f"{args['frame_height']}x{args['frame_width']}"
    if args.get("fixed_input_scale"):
        scale = "x / 255"
    elif facts.has_mean_picture:
        scale = "less the game's mean picture"
    else:
        scale = "less the mean of all pixels"
    return f"{args['preprocessing']} preprocessing, `{args['frame_format']}`, {size}, {scale}"


def format_recipe(facts: Facts) -> str:
    """Returns how the agent learned."""
    args, games = facts.args, facts.meta["tasks"]
    given = args.get("game_weights")
    weights = parse_game_weights(given, games) if given else [1.0] * len(games)
    actors = args["num_actors"] or default_num_actors(weights)
    return (
        f"{args['optimizer']}, learning rate {args['learning_rate']:g} falling linearly to 0 at "
        f"{args['total_steps']:,} steps; {actors} environments, {args['batch_size']} rollouts of "
        f"{args['unroll_length']} steps per update; entropy cost {args['entropy_cost']:g}, "
        f"discount {args['discounting']:g}; rewards {format_rewards(facts)}"
    )


def format_rewards(facts: Facts) -> str:
    """Returns what the learner does with rewards."""
    return "as they are" if facts.meta.get("reward_clipping") == "none" else "clipped to [-1, 1]"


def format_steps(facts: Facts) -> str:
    """Returns how long the agent was trained, in steps."""
    target = facts.args["total_steps"]
    games = len(facts.meta["tasks"])
    share = f" of {target:,}" if facts.steps < target else ""
    parts = [f"{facts.steps:,}{share} agent steps"]
    if games > 1:
        parts.append(f"about {round(facts.steps / games, -3):,.0f} in each game")
    parts.append(f"{FRAMES_PER_STEP * facts.steps / 1e6:.1f} million frames")
    return ", ".join(parts)


def format_time(facts: Facts) -> str:
    """Returns how long the agent was trained, in hours, and on what."""
    text = f"{facts.seconds / 3600:.1f} hours"
    torch_version = str(facts.meta.get("versions", {}).get("torch", ""))
    gpu = ", without a GPU" if torch_version.endswith("+cpu") else ""
    if not facts.slices:
        return text + gpu
    places = dict.fromkeys((s.cores, s.machine) for s in facts.slices)
    machines = "; ".join(f"{counted(cores, 'core')} of {name}" for cores, name in places)
    return f"{text} in {counted(len(facts.slices), 'slice')} on {machines}{gpu}"


def format_scores(evaluation: Evaluation) -> str:
    """Returns the table of scores: a row per game, and the median over games.

    Greedy games are repeats of a few, so their mean has no interval.
    """
    header = ["game", "sampled", "random", "human", "% of human", "greedy", "different"]
    rows = []
    for game, returns in evaluation.returns.items():
        sampled = format_score(evaluation.score(game, "sampled"))
        share = format_share(evaluation.normalized(game, "sampled"))
        greedy = [human_return(returns["greedy"].mean()), str(len(set(returns["greedy"])))]
        rows.append([short_name(game), sampled, *format_known(game), share, *greedy])
    median = format_share(evaluation.normalized_median("sampled"))
    if median:
        rows.append(["median", "", "", "", median, "", ""])
    return format_table(header, rows)


def format_notes(evaluation: Evaluation) -> list[str]:
    """Returns the paragraphs below the scores."""
    episodes = {len(v) for values in evaluation.returns.values() for v in values.values()}
    count = " to ".join(str(n) for n in dict.fromkeys((min(episodes), max(episodes))))
    notes = [
        f"Mean return of {count} full games per game (`--mode test --sample --num_episodes "
        f"{max(episodes)} --seed {evaluation.seed}`; greedy without `--sample`). Brackets are 95 % "
        "bootstrap intervals over these games. They say nothing about other seeds of training. "
        "Greedy games repeat each other: `different` counts their different scores. 0 % is a "
        "random agent, 100 % a professional games tester (Wang et al. 2016, arXiv:1511.06581)."
    ]
    unknown = [short_name(g) for g in evaluation.returns if find_reference(g).human is None]
    if unknown:
        notes.append(
            f"No human score of {' and '.join(unknown)} is published. Random scores of games "
            "without a published one are means of 30 games."
        )
    return notes


def format_score(score: Score) -> str:
    """Formats a mean return with its interval."""
    text = human_return(score.mean)
    if score.interval is None:
        return text
    return f"{text} [{human_return(score.interval.low)}, {human_return(score.interval.high)}]"


def format_share(score: Score | None) -> str:
    """Formats a human-normalised score with its interval; empty for None."""
    if score is None:
        return ""
    text = f"{100 * score.mean:.0f}"
    if score.interval is None:
        return text
    return f"{text} [{100 * score.interval.low:.0f}, {100 * score.interval.high:.0f}]"


def format_known(game: str) -> list[str]:
    """Formats the scores of a random agent and of a human in a game; empty where not known."""
    reference = find_reference(game)
    values = (reference.random, reference.human)
    return ["" if value is None else human_return(value) for value in values]


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
