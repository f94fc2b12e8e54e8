"""Films of games: ``--mode record`` and ``--mode test_render``."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

import gymnasium

from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.envs.stream import is_game_over
from torchbeast.play.agents import Trained, choose_games, load_trained, warn_of_unknown
from torchbeast.play.config import PlayConfig
from torchbeast.play.game_loop import GameLoop, PlayedGame, draw_game, open_games, read_actions
from torchbeast.play.movie_writer import MovieWriter
from torchbeast.play.pictures import caption, magnify
from torchbeast.records.run_files import file_name
from torchbeast.runtime.signals import StopSignals

log = logging.getLogger("torchbeast")


class Captioned(gymnasium.Wrapper):
    """Writes the game's name, score and step above the picture."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        # What HumanRendering asks for; environments of one kind of picture often do not say it.
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": frames_per_second(env)}
        self._name = name
        self._score, self._step = 0.0, 0
        self._game_over = True

    @property
    def render_mode(self) -> str:  # type: ignore[override]
        """The kind of pictures: those in memory."""
        return "rgb_array"

    def reset(self, **kwargs: Any) -> Any:
        """Starts an episode; see gymnasium.Env."""
        if self._game_over:  # Not where only a life was lost.
            self._score, self._step = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Takes one step and adds its reward to the score; see gymnasium.Env."""
        result = self.env.step(action)
        self._score += float(result[1])
        self._step += 1
        self._game_over = is_game_over(result[4])
        return result

    def render(self) -> Any:
        """Returns the game's picture with its name and score above it."""
        text = f"{self._name}   {self._score:g}   step {self._step}"
        return caption(magnify(draw_game(self.env)), text)


def frames_per_second(env: gymnasium.Env) -> float:
    """Returns agent steps per second at the game's own speed."""
    return float(env.metadata.get("render_fps") or 30)


def movie_name(trained: Trained, game: str) -> str:
    """Returns the default file name of a film: ``<xpid>_<step>_<env>.gif``."""
    return f"{trained.xpid}_{trained.model_id}_{file_name(game)}.gif"


def movie_path(config: PlayConfig, trained: Trained, game: str, num_games: int) -> Path:
    """Returns where the film of a game goes.

    Args:
        config: ``--movie`` names a file or a directory: one that exists, or a name without suffix.
            The default is ``movies/`` in the run's directory.
        num_games: how many games are filmed.

    Raises:
        UsageError: ``--movie`` is one file, and there are several games.
    """
    if config.movie is None:
        return trained.directory / "movies" / movie_name(trained, game)
    path = Path(config.movie).expanduser()
    if path.is_dir() or not path.suffix:
        return path / movie_name(trained, game)
    if num_games > 1:
        raise UsageError(
            f"--movie {config.movie} is one file: name a directory for {num_games} games, or "
            "choose one with --env"
        )
    return path


def record(config: PlayConfig, signals: StopSignals) -> None:
    """Runs ``--mode record``: films a whole game per game; the actions go into a file beside it.

    ``--actions`` with that file plays the same game again under the same ``--seed``. A signal ends
    the recording; what was recorded until then is saved.
    """
    trained = load_trained(config.trained)
    _record_games(config, trained, choose_games(trained, config.env), signals)


def _record_games(
    config: PlayConfig, trained: Trained, games: tuple[str, ...], signals: StopSignals
) -> None:
    for game in games:
        warn_of_unknown(trained, game)
    paths = [movie_path(config, trained, game, len(games)) for game in games]
    actions = read_actions(config.actions, trained.agent.config.num_actions)
    with signals:
        for game, path in zip(games, paths, strict=True):
            if signals.received is not None:
                return
            log.info("Filming %s", short_name(game))
            _film_game(config, trained, game, path, actions, signals)


def _film_game(
    config: PlayConfig,
    trained: Trained,
    game: str,
    path: Path,
    actions: list[int],
    signals: StopSignals,
) -> None:
    """Films a game in colour, at its own speed, until it is over or the film has to end.

    Prints a line about the film. One of no steps is not written. Raises UsageError if the file
    cannot be made, RunError if it cannot be written.
    """
    played: list[int] = []
    with (
        open_games(trained, game, seed=config.seed, render_mode="rgb_array") as (env,),
        MovieWriter(path, frames_per_second(env)) as movie,
    ):
        loop = GameLoop(
            trained, game, [env], greedy=config.greedy, seed=config.seed, actions=actions
        )
        ended: list[tuple[int, PlayedGame]] = []
        while not ended and not movie.is_full and len(played) != config.movie_steps:
            if signals.received is not None:
                what = "Saving the film" if played else "No film: no step was played"
                print(f"{what} ({signals.HINT})", file=sys.stderr)
                break
            movie.append(magnify(draw_game(env)))
            ended = loop.step()
            played.append(int(loop.last_actions[0]))
    if not played:
        return
    actions_path = path.with_suffix(".actions")
    actions_path.write_text("\n".join(map(str, played)) + "\n")
    if ended:
        episode = ended[0][1]
        print(
            f"{path}: {game}, return {episode.episode_return:g} in {episode.episode_step} steps; "
            f"actions in {actions_path}"
        )
        return
    reason = ", until the interruption" if signals.received is not None else ""
    print(f"{path}: the first {len(played):,} steps of {game}{reason}")


def render(config: PlayConfig, signals: StopSignals) -> None:
    """Runs ``--mode test_render``: games in a window; recorded where there is no display."""
    trained = load_trained(config.trained)
    games = choose_games(trained, config.env)
    if not _can_open_windows():
        print("No display: recording one film of each game instead", file=sys.stderr)
        _record_games(config, trained, games, signals)
        return
    for name in ("movie", "movie_steps"):
        if getattr(config, name) is not None:
            log.warning("--%s has no effect on a window: see --mode record", name)
    for game in games:
        warn_of_unknown(trained, game)
        if not _show_game(config, trained, game):
            return


def _show_game(config: PlayConfig, trained: Trained, game: str) -> bool:
    """Shows a game in a window until there are enough episodes, and prints a line for each.

    Returns False if the user has closed the window.
    """
    import pygame
    from gymnasium.wrappers import HumanRendering

    actions = read_actions(config.actions, trained.agent.config.num_actions)
    with contextlib.ExitStack() as stack:
        games = open_games(trained, game, seed=config.seed, render_mode="rgb_array")
        (env,) = stack.enter_context(games)
        env = HumanRendering(Captioned(env, short_name(game)))
        stack.callback(pygame.quit)  # Closes the window.
        loop = GameLoop(
            trained, game, [env], greedy=config.greedy, seed=config.seed, actions=actions
        )
        pygame.display.set_caption(f"{short_name(game)} - {trained.xpid}")
        num_played = 0
        while num_played < config.num_episodes:
            if pygame.event.peek(pygame.QUIT):
                return False
            for _, episode in loop.step():
                num_played += 1
                episode.print_line(trained)
    return True


def _can_open_windows() -> bool:
    """Whether pygame can open a window here. Raises UsageError if there is a display, but no
    pygame.
    """
    if not has_display():
        return False
    try:
        import pygame
    except ImportError as error:
        raise UsageError("--mode test_render needs pygame: pip install pygame-ce") from error
    try:
        pygame.display.init()
    except pygame.error:
        return False
    # Where the display does not answer, SDL draws into memory.
    return "SDL_VIDEODRIVER" in os.environ or pygame.display.get_driver() != "offscreen"


def has_display() -> bool:
    """Whether there should be a display here."""
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
