"""Films of games: ``--mode record`` and ``--mode test_render``."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.play.agents import Trained, choose_games, load_trained, warn_of_unknown
from torchbeast.play.config import EvaluationConfig
from torchbeast.play.games import Episode, GameLoop, draw_game, make_games, open_games, read_actions
from torchbeast.play.movie_writer import MovieWriter, caption, magnify
from torchbeast.runtime.threads import StopSignals

log = logging.getLogger("torchbeast")


class Captioned(gymnasium.Wrapper):
    """Writes the game's name, score and step above the picture."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._score, self._step = 0.0, 0
        self._game_over = True

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
        self._game_over = bool(result[4].get("game_over", True))
        return result

    def render(self) -> Any:
        """Returns the game's picture with its name and score above it."""
        text = f"{self._name}   {self._score:g}   step {self._step}"
        return caption(magnify(draw_game(self.env)), text)


def frames_per_second(env: gymnasium.Env) -> float:
    """Returns agent steps per second at the game's own speed."""
    return float(env.metadata.get("render_fps") or 30)


class Film(NamedTuple):
    """A game on film."""

    path: Path
    actions_path: Path
    """The actions that were played, for ``--actions``."""
    num_steps: int
    episode: Episode | None
    """None if the film ends before the game."""
    is_full: bool
    """Whether it has the greatest length of its format."""


def movie_name(trained: Trained, game: str) -> str:
    """Returns the default file name of a film: ``<xpid>_<step>_<env>.gif``."""
    return f"{trained.xpid}_{trained.model_id}_{file_name(game)}.gif"


def file_name(game: str) -> str:
    """Returns a game's id as part of a file name.

    >>> file_name("ALE/Pong-v5")
    'ALE-Pong-v5'
    """
    return game.replace("/", "-").replace(":", "-")


def movie_path(config: EvaluationConfig, trained: Trained, game: str, num_games: int) -> Path:
    """Returns where the film of a game goes.

    Args:
        config: ``--movie`` names a file or a directory: one that exists, or a name without suffix.
            The default is ``movies/`` in the run's directory.
        trained: the agent.
        game: the game's id.
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


def film_game(
    trained: Trained,
    game: str,
    path: Path,
    *,
    greedy: bool,
    seed: int,
    is_over: Callable[[int], bool],
    actions: Sequence[int] = (),
) -> Film:
    """Films a game in colour, at its own speed, from its start to its end.

    Args:
        trained: the agent.
        game: the game's id.
        path: the file, ``.gif`` or ``.mp4``. The actions go into a file beside it.
        greedy: take the likeliest action instead of sampling one.
        seed: of the game.
        is_over: is asked before each step, with the number of steps so far, whether the film ends
            before the game does. What it raises leaves no film.
        actions: are played first, instead of the agent's.

    Returns:
        What was filmed. A film of no steps is not written.

    Raises:
        UsageError: the file cannot be written.
    """
    played: list[int] = []
    with (
        open_games(trained, game, seed=seed, render_mode="rgb_array") as (env,),
        MovieWriter(path, frames_per_second(env)) as movie,
    ):
        loop = GameLoop(trained, game, [env], greedy=greedy, seed=seed, actions=actions)
        ended: list[tuple[int, Episode]] = []
        while not ended and not movie.is_full and not is_over(len(played)):
            movie.append(magnify(draw_game(env)))
            ended = loop.step()
            played.append(int(loop.last_actions[0]))
    actions_path = path.with_suffix(".actions")
    if played:
        actions_path.write_text("\n".join(map(str, played)) + "\n")
    episode = ended[0][1] if ended else None
    return Film(path, actions_path, len(played), episode, movie.is_full)


def record(config: EvaluationConfig, signals: StopSignals) -> None:
    """Runs ``--mode record``: films a whole game per game; the actions go into a file beside it.

    ``--actions`` with that file plays the same game again under the same ``--seed``. A signal ends
    the recording; what was recorded until then is saved.
    """
    trained = load_trained(config.trained)
    _record_games(config, trained, choose_games(trained, config.env), signals)


def _record_games(
    config: EvaluationConfig, trained: Trained, games: tuple[str, ...], signals: StopSignals
) -> None:
    for game in games:
        warn_of_unknown(trained, game)
    paths = [movie_path(config, trained, game, len(games)) for game in games]
    actions = read_actions(config.actions, trained.agent.config.num_actions)

    def is_over(step: int) -> bool:
        if signals.received is not None:
            print(f"Saving the film ({signals.HINT})", file=sys.stderr)
        return signals.received is not None or step == config.movie_steps

    with signals:
        for game, path in zip(games, paths, strict=True):
            if signals.received is not None:
                return
            log.info("Filming %s", short_name(game))
            film = film_game(
                trained,
                game,
                path,
                greedy=config.greedy,
                seed=config.seed,
                is_over=is_over,
                actions=actions,
            )
            if film.num_steps:
                _print_film(film, game, interrupted=signals.received is not None)


def _print_film(film: Film, game: str, *, interrupted: bool) -> None:
    if film.episode is not None:
        print(
            f"{film.path}: {game}, return {film.episode.episode_return:g} in "
            f"{film.episode.episode_step} steps; actions in {film.actions_path}"
        )
        return
    reason = ""
    if interrupted:
        reason = ", until the interruption"
    elif film.is_full:
        reason = "; use .mp4 for long games"
    print(f"{film.path}: the first {film.num_steps:,} steps of {game}{reason}")


def render(config: EvaluationConfig, signals: StopSignals) -> None:
    """Runs ``--mode test_render``: games in a window; recorded where there is no display."""
    trained = load_trained(config.trained)
    games = choose_games(trained, config.env)
    if not has_display():
        print("No display: recording instead", file=sys.stderr)
        _record_games(config, trained, games, signals)
        return
    with contextlib.suppress(_WindowClosedError):
        for game in games:
            warn_of_unknown(trained, game)
            for episode in _show_game(config, trained, game):
                values = (trained.xpid, trained.model_id, game, episode.episode_step)
                print(*values, f"{episode.episode_return:g}", sep=",", flush=True)


class _WindowClosedError(Exception):
    """The user has seen enough."""


def _show_game(config: EvaluationConfig, trained: Trained, game: str) -> Iterator[Any]:
    """Yields episodes until there are enough. Raises _WindowClosedError."""
    try:
        import pygame
    except ImportError as error:
        raise UsageError("--mode test_render needs pygame: pip install pygame") from error
    from gymnasium.wrappers import HumanRendering

    actions = read_actions(config.actions, trained.agent.config.num_actions)
    (env,) = make_games(trained, game, seed=config.seed, render_mode="rgb_array")
    env = Captioned(env, short_name(game))
    env.metadata = {**env.metadata, "render_fps": frames_per_second(env)}
    env = HumanRendering(env)
    with contextlib.closing(env):
        loop = GameLoop(
            trained, game, [env], greedy=config.greedy, seed=config.seed, actions=actions
        )
        pygame.display.set_caption(f"{short_name(game)} - {trained.xpid}")
        num_played = 0
        while num_played < config.num_episodes:
            if pygame.event.peek(pygame.QUIT):
                raise _WindowClosedError
            for _, episode in loop.step():
                num_played += 1
                yield episode


def has_display() -> bool:
    """Whether a window can be opened here."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
