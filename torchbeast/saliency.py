"""Where an agent looks: ``python -m torchbeast.saliency``. Flags, then wiring."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser, file, positive

if TYPE_CHECKING:
    from torchbeast.analysis.saliency import Explainer, SaliencyConfig
    from torchbeast.analysis.saliency.film import SaliencyFilm, Watcher
    from torchbeast.analysis.saliency.report import Check
    from torchbeast.play.agents import Trained
    from torchbeast.runtime.threads import StopSignals

log = logging.getLogger("torchbeast")


def make_parser() -> Parser:
    """Builds the parser of ``python -m torchbeast.saliency``."""
    parser = Parser(
        "saliency", "Shows where a blur changes an agent's policy (orange) and value (blue)."
    )
    flags_lib.add_trained_flags(parser)
    flags_lib.add_watched_game_flags(parser, first_frame=150, num_frames=20)
    group = parser.add_argument_group("saliency")
    add = group.add_argument
    add(
        "--score",
        nargs="+",
        default=["policy", "value"],
        metavar="SCORE",
        help="What the maps show the influence on: policy, value, action (the chosen one), "
        "action:NAME, task:GAME (another game's value head). The first two scores are drawn over "
        "the game. (default: policy value)",
    )
    add(
        "--density",
        type=positive,
        default=2,
        help="Pixels between the centres of two masks. (default: %(default)s)",
    )
    add(
        "--radius",
        type=positive,
        default=5,
        help="Standard deviation of a mask, in pixels. (default: %(default)s)",
    )
    add(
        "--precision",
        choices=["auto", "float32", "bfloat16"],
        default="float32",
        help="Precision of the network. bfloat16 takes about half of the time, for coarser maps. "
        "auto: bfloat16 where the hardware has it, else float32. (default: %(default)s)",
    )
    add("--disable_cuda", action="store_true", help="Do not use a GPU.")
    add_output_flags(parser)
    add_object_flags(parser)
    return parser


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Adds what is written besides the maps, and where."""
    add = parser.add_argument_group("output").add_argument
    add(
        "--saliencydir",
        help="Directory for <xpid>/<env>/<step>.png and scores.npz. (default: saliency/<env> in "
        "the run's directory)",
    )
    add(
        "--compare",
        metavar="XPIDS",
        help="More agents, separated by commas. They see the same actions and are drawn side by "
        "side in the film. (default: none)",
    )
    add(
        "--check",
        action="store_true",
        help="Test the maps: shuffled layers, deletion and insertion, integrated gradients. Writes "
        "check.json and check.png.",
    )
    add(
        "--html",
        type=file(".html"),
        metavar="FILE",
        help="File for a web page that steps through the frames, with the maps as layers, policy, "
        "value and checks. (default: no page)",
    )
    add(
        "--sheet",
        type=file(".png"),
        metavar="PNG",
        help="File for a picture with a row per agent and the frames from left to right. "
        "(default: no picture)",
    )


def add_object_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the table of objects, which takes the place of the maps."""
    add = parser.add_argument_group("objects").add_argument
    add(
        "--objects",
        type=file(".png"),
        metavar="PNG",
        help="Instead of maps: print and draw how much policy and value change without the objects "
        "of each colour, for --xpid and --compare, in every fourth of the frames. (default: maps)",
    )
    add(
        "--num_games",
        type=positive,
        default=8,
        help="Games of --objects, with seeds from --seed on; intervals are over games. "
        "(default: %(default)s)",
    )


def make_config(flags: argparse.Namespace) -> SaliencyConfig:
    """Makes the configuration of the maps from the flags."""
    from torchbeast.analysis.saliency import SaliencyConfig
    from torchbeast.runtime.devices import choose_devices
    from torchbeast.runtime.precision import choose_dtype

    device = choose_devices(flags.disable_cuda).inference
    return SaliencyConfig(
        density=flags.density,
        radius=flags.radius,
        dtype=choose_dtype(flags.precision, device),
        device=str(device),
    )


class Players(NamedTuple):
    """Agents that watch one game; all play the actions of the first."""

    agents: list[Trained]
    game: str
    actions: list[int]
    """Are played first, instead of the agent's."""

    def play(self, num_steps: int, seed: int) -> list[list[int]]:
        """Plays a game with the first agent. Returns its actions as each agent numbers them.

        Raises UsageError if an agent lacks one.
        """
        from torchbeast.play.games import translate_actions, watch_game

        first = self.agents[0]
        game = watch_game(first, self.game, num_frames=num_steps, seed=seed, actions=self.actions)
        played = [step.action for step in game]
        return [translate_actions(played, self.game, first, trained) for trained in self.agents]


def load_players(flags: argparse.Namespace) -> Players:
    """Loads the agents of ``--xpid`` and ``--compare`` and chooses a game. Raises UsageError."""
    from torchbeast.core.types import UsageError
    from torchbeast.play.agents import choose_game, load_trained, name_apart
    from torchbeast.play.config import TrainedAgentConfig
    from torchbeast.play.games import read_actions

    config = TrainedAgentConfig.from_flags(vars(flags), flags.given)
    others = [name.strip() for name in flags.compare.split(",")] if flags.compare else []
    if not all(others):
        raise UsageError(f"--compare {flags.compare}: the name of an agent is empty")
    # What the command line says of an agent is said of the first.
    another = config._replace(intermediate_model_id=None, expected={})
    of_others = [another._replace(xpid=name) for name in others]
    agents = [load_trained(one) for one in (config, *of_others)]
    for other in agents[1:]:
        if other.observation.preprocessing != agents[0].observation.preprocessing:
            raise UsageError(
                f"{other.xpid} and {agents[0].xpid} do not see the same game: their preprocessing "
                f"is {other.observation.preprocessing} and {agents[0].observation.preprocessing}"
            )
    actions = read_actions(flags.actions, agents[0].agent.config.num_actions)
    return Players(name_apart(agents), choose_game(agents[0], flags.env), actions)


def make_directories(flags: argparse.Namespace, agents: list[Trained], game: str) -> list[Path]:
    """Makes a directory for each agent's pictures of a game: below ``--saliencydir``, else in its
    run's directory. Raises UsageError.
    """
    from torchbeast.analysis.results import checkpoint_directory, make_directory
    from torchbeast.core.types import UsageError
    from torchbeast.play.films import file_name

    made: dict[Path, tuple[str, Path]] = {}
    for trained in agents:
        root = trained.directory / "saliency"
        if flags.saliencydir is not None:
            root = Path(flags.saliencydir).expanduser() / file_name(trained.xpid)
        directory = checkpoint_directory(root, trained.intermediate_id, game)
        other, _ = made.setdefault(directory.resolve(), (trained.xpid, directory))
        if other != trained.xpid:
            raise UsageError(
                f"the maps of {other} and {trained.xpid} would have one directory, {directory}; "
                "with --saliencydir each agent has its own"
            )
        make_directory(directory, "--saliencydir")
    return [directory for _, directory in made.values()]


def make_watchers(flags: argparse.Namespace) -> list[Watcher]:
    """Prepares all agents to watch one game.

    Makes a directory for the pictures of each before that. Raises UsageError.
    """
    from torchbeast.analysis.saliency import Explainer, parse_scores
    from torchbeast.analysis.saliency.film import Watcher

    players = load_players(flags)
    config = make_config(flags)
    explainers = [Explainer(trained, players.game, config) for trained in players.agents]
    scores = [parse_scores(flags.score, explainer.subject) for explainer in explainers]
    directories = make_directories(flags, players.agents, players.game)
    actions = [players.actions]
    if len(explainers) > 1:  # --actions may be too few: the first agent plays the rest, for all.
        actions = players.play(flags.first_frame + flags.num_frames, flags.seed)
    steps = [
        explainer.watch(
            first_frame=flags.first_frame,
            num_frames=flags.num_frames,
            seed=flags.seed,
            actions=played,
        )
        for explainer, played in zip(explainers, actions, strict=True)
    ]
    return list(map(Watcher, explainers, scores, steps, directories))


# What is read without --objects only, and with it only.
OF_MAPS = {
    *("score", "density", "radius", "precision"),
    *("disable_cuda", "saliencydir", "check", "html", "sheet", "movie"),
}
OF_OBJECTS = {"num_games"}


def show_objects(flags: argparse.Namespace) -> None:
    """Prints and draws what agents do without objects. Raises UsageError."""
    import torch

    from torchbeast.analysis.panels import save_figure
    from torchbeast.analysis.results import make_directory
    from torchbeast.analysis.saliency import objects
    from torchbeast.core.types import UsageError
    from torchbeast.envs.games import is_atari
    from torchbeast.play.agents import check_game
    from torchbeast.runtime.progress_bar import track

    log.info("Loading the agents")
    make_directory(flags.objects.parent, "--objects")  # At once, not when the work is done.
    torch.set_num_threads(1)  # Few pictures at a time: a second thread gains little.
    players = load_players(flags)
    agents, game = players.agents, players.game
    if not is_atari(game):
        raise UsageError(
            "--objects is for Atari games: the layout of other observations is unknown"
        )
    for trained in agents:
        check_game(trained, game)
    seen: list[list[list[objects.Moment]]] = [[] for _ in agents]
    seeds = range(flags.seed, flags.seed + flags.num_games)
    for seed in track(seeds, total=len(seeds), unit="games"):
        played = players.play(flags.first_frame + flags.num_frames, seed)
        if len(played[0]) <= flags.first_frame:
            log.warning("The game of seed %s is over after %s steps", seed, len(played[0]))
            continue
        for trained, games, actions in zip(agents, seen, played, strict=True):
            games.append(
                objects.watch_moments(
                    trained, game, seed=seed, actions=actions,
                    first_frame=flags.first_frame, num_frames=flags.num_frames,
                )
            )  # fmt: skip
    if not seen[0]:
        raise UsageError(f"--first_frame {flags.first_frame}: no game lasts so long")
    found = objects.find_kinds(seen[0])
    effects = {
        trained.xpid: objects.measure(trained, game, games, found)
        for trained, games in zip(agents, seen, strict=True)
    }
    print("\n".join(objects.format_table(found, effects)))
    print(save_figure(objects.draw_effects(seen[0], found, effects), flags.objects))


def show(flags: argparse.Namespace, signals: StopSignals) -> None:
    """Writes pictures and scores, and the film. A signal ends the work; the frames until then are
    saved.

    Raises UsageError.
    """
    from torchbeast.analysis.results import make_directory
    from torchbeast.analysis.saliency.film import watch
    from torchbeast.runtime.precision import keep_freed_pages

    log.info("Loading the agents")
    for flag in ("movie", "sheet", "html"):  # At once, not when the work is done.
        path = getattr(flags, flag)
        if path is not None:
            make_directory(path.parent, f"--{flag}")
    keep_freed_pages()
    watchers = make_watchers(flags)
    with signals:
        films = watch(watchers, flags.num_frames, signals)
        save(flags, watchers, films, signals)


def save(
    flags: argparse.Namespace,
    watchers: list[Watcher],
    films: list[SaliencyFilm],
    signals: StopSignals,
) -> None:
    """Writes all files. A signal ends the checks, which take long, and leaves them out."""
    from torchbeast.analysis.results import remove_earlier
    from torchbeast.analysis.saliency import drawing, viewer
    from torchbeast.analysis.saliency.film import save_scores

    peaks = drawing.find_peaks(films)
    checks: list[list[Check]] = []
    for (explainer, _, _, directory), film in zip(watchers, films, strict=True):
        remove_earlier(directory)
        save_scores(directory / "scores.npz", film, {**explainer.describe(), "seed": flags.seed})
        drawing.save_pictures(directory, film, peaks)
        print(f"{len(film.steps)} frames in {directory}")
        checks.append(check_maps(explainer, film, directory, signals) if flags.check else [])
    if flags.movie:
        drawing.write_movie(flags.movie, films, peaks)
        print(flags.movie)
    if flags.sheet:
        drawing.write_sheet(flags.sheet, films, peaks)
        print(flags.sheet)
    if flags.html:
        viewer.write_page(flags.html, watchers[0].explainer.game, films, peaks, checks)
        print(flags.html)


def check_maps(
    explainer: Explainer, film: SaliencyFilm, directory: Path, signals: StopSignals
) -> list[Check]:
    """Checks an agent's maps, prints and saves the result, and returns it; after a signal, none."""
    from torchbeast.analysis.saliency import report
    from torchbeast.runtime.threads import StopRequestedError

    try:
        checks = report.run_checks(explainer, film, signals.check)
    except StopRequestedError:
        print(f"Leaving the checks out ({signals.HINT})", file=sys.stderr)
        return []
    report.save_checks(directory, checks)
    print(report.format_table(checks))
    return checks


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = (parser := make_parser()).parse_args(argv)
    flags.given = parser.given(argv)

    def work(signals: StopSignals) -> None:
        if flags.objects:
            parser.warn_of_unused(flags.given & OF_MAPS, "with --objects")
            show_objects(flags)
        else:
            parser.warn_of_unused(flags.given & OF_OBJECTS, "without --objects")
            show(flags, signals)

    return run_command("saliency", work)


if __name__ == "__main__":
    sys.exit(main())
