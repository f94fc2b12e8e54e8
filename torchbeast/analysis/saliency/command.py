"""The work of ``python -m torchbeast.saliency``, by the values of its flags."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from torchbeast.analysis.panels import save_figure
from torchbeast.analysis.results import checkpoint_directory, make_directory, remove_earlier
from torchbeast.analysis.saliency import (
    Explainer,
    SaliencyConfig,
    drawing,
    objects,
    parse_scores,
    report,
    viewer,
)
from torchbeast.analysis.saliency.film import SaliencyFilm, Watcher, save_scores, watch
from torchbeast.analysis.saliency.report import Check
from torchbeast.core.types import UsageError
from torchbeast.envs.games import is_atari
from torchbeast.play.agents import Trained, check_game, choose_game, load_trained, name_apart
from torchbeast.play.config import TrainedAgentConfig
from torchbeast.play.game_loop import read_actions, translate_actions, watch_game
from torchbeast.records.run_files import file_name
from torchbeast.runtime.devices import choose_devices
from torchbeast.runtime.precision import choose_dtype, keep_freed_pages, use_whole_float32
from torchbeast.runtime.progress_bar import track
from torchbeast.runtime.signals import StopRequestedError, StopSignals
from torchbeast.runtime.text import counted

log = logging.getLogger("torchbeast")


def make_config(flags: argparse.Namespace) -> SaliencyConfig:
    """Makes the configuration of the maps from the flags."""
    device = choose_devices(flags.disable_cuda).inference
    use_whole_float32(device)
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
        first = self.agents[0]
        game = watch_game(first, self.game, num_frames=num_steps, seed=seed, actions=self.actions)
        played = [step.action for step in game]
        return [translate_actions(played, self.game, first, trained) for trained in self.agents]


def load_players(flags: argparse.Namespace) -> Players:
    """Loads the agents of ``--xpid`` and ``--compare`` and chooses a game. Raises UsageError."""
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


def show_objects(flags: argparse.Namespace) -> None:
    """Prints and draws what agents do without objects. Raises UsageError."""
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
    log.info("Loading the agents")
    for flag in ("movie", "sheet", "html"):  # At once, not when the work is done.
        path = getattr(flags, flag)
        if path is not None:
            make_directory(path.parent, f"--{flag}")
    keep_freed_pages()
    watchers = make_watchers(flags)
    views = zip(*(watcher.steps for watcher in watchers), strict=False)
    first = next(views)  # Until there is a frame, a signal ends the program at once.
    with signals:
        films = watch(watchers, itertools.chain([first], views), flags.num_frames, signals)
        save(flags, watchers, films, signals)


def save(
    flags: argparse.Namespace,
    watchers: list[Watcher],
    films: list[SaliencyFilm],
    signals: StopSignals,
) -> None:
    """Writes all files. A signal ends the checks, which take long, and leaves them out."""
    peaks = drawing.find_peaks(films)
    checks: list[list[Check]] = []
    for (explainer, _, _, directory), film in zip(watchers, films, strict=True):
        remove_earlier(directory)
        save_scores(directory / "scores.npz", film, {**explainer.describe(), "seed": flags.seed})
        drawing.save_pictures(directory, film, peaks)
        print(f"{counted(len(film.steps), 'frame')} in {directory}")
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
    try:
        checks = report.run_checks(explainer, film, signals)
    except StopRequestedError:
        print(f"Leaving the checks out ({signals.HINT})", file=sys.stderr)
        return []
    report.save_checks(directory, checks)
    print(report.format_table(checks))
    return checks
