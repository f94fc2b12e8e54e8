"""Films of games: ``--mode record`` and ``--mode test_render``."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import cv2
import gymnasium
import imageio.v2 as imageio
import numpy as np
from PIL import GifImagePlugin, Image

from torchbeast.core.types import RunError, UsageError
from torchbeast.envs.games import short_name
from torchbeast.play.agents import Trained, choose_games, load_trained
from torchbeast.play.config import EvaluationConfig, check_movie_path
from torchbeast.play.games import Episode, GameLoop, draw_game, make_games, open_games, read_actions
from torchbeast.runtime.threads import StopSignals

log = logging.getLogger("torchbeast")

# Of a picture, in hundredths of a second: the format has 16 bits for it.
MAX_DURATION = 65_535
LOOP_FOR_EVER = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
TRAILER = b";"


class Palette:
    """Numbers the colours of a film as they turn up. Games have at most 128 of them."""

    def __init__(self) -> None:
        self._colours: list[int] = []
        # One past the number of each packed colour; 0: not seen yet.
        self._numbers = np.zeros(1 << 24, np.uint16)

    def apply(self, picture: np.ndarray) -> Image.Image:
        """Converts a picture to the palette, exactly while there are at most 256 colours."""
        red, green, blue = (picture[..., i].astype(np.uint32) for i in range(3))
        packed = red << 16 | green << 8 | blue
        numbers = self._numbers[packed]
        if not numbers.all():
            new = np.unique(packed[numbers == 0])
            if len(self._colours) + len(new) > 256:
                return Image.fromarray(picture).quantize(256)
            self._numbers[new] = len(self._colours) + 1 + np.arange(len(new))
            self._colours += new.tolist()
            numbers = self._numbers[packed]
        image = Image.fromarray((numbers - 1).astype(np.uint8))
        image.putpalette([c >> shift & 255 for c in self._colours for shift in (16, 8, 0)])
        return image


class GifWriter:
    """Writes pictures of one size. Keeps one of them, whatever the length of the film.

    Of each picture the part that differs from the one before is written. Equal pictures in a row
    are one that is shown longer.
    """

    def __init__(self, file: IO[bytes], fps: float) -> None:
        """Writes nothing yet.

        Args:
            file: open for writing.
            fps: pictures per second. A GIF counts in hundredths of a second; the times of pictures
                are rounded, so that the speed of the film is exact.
        """
        self._file = file
        self._fps = fps
        self._palette = Palette()
        self._count = 0
        self._last: np.ndarray | None = None
        # The part of the last picture that is to be written, where it stands, and since when.
        self._part: Image.Image | None = None
        self._offset = (0, 0)
        self._since = 0

    def __len__(self) -> int:
        return self._count

    def append(self, picture: np.ndarray) -> None:
        """Adds a picture, uint8 ``[H, W, 3]``."""
        height, width = picture.shape[:2]
        box = (0, 0, width, height)
        if self._last is None:
            # Without a common palette: every picture brings the colours that are known by then.
            self._file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0x70, 0, 0))
            self._file.write(LOOP_FOR_EVER)
        else:
            rows, columns = np.nonzero((picture != self._last).any(axis=-1))
            if not len(rows):
                self._count += 1
                return
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            self._write_part()
        left, top, right, bottom = map(int, box)
        self._part = self._palette.apply(np.ascontiguousarray(picture[top:bottom, left:right]))
        self._offset = (left, top)
        self._since = self._count
        self._last = picture.copy()
        self._count += 1

    def close(self) -> None:
        """Writes the last picture and the end of the film. The file stays open."""
        self._write_part()
        self._file.write(TRAILER)

    def _write_part(self) -> None:
        assert self._part is not None
        duration = self._time(self._count) - self._time(self._since)
        while duration > MAX_DURATION:
            self._write(self._part, MAX_DURATION)
            duration -= MAX_DURATION
        self._write(self._part, duration)

    def _time(self, index: int) -> int:
        """Hundredths of a second from the start of the film to a picture."""
        return round(index * 100 / self._fps)

    def _write(self, part: Image.Image, duration: int) -> None:
        data = GifImagePlugin.getdata(
            part, self._offset, duration=10 * duration, include_color_table=True
        )
        self._file.write(b"".join(data))


# Of longer films an MP4 is a tenth as large.
MAX_GIF_FRAMES = 10_000


class MovieWriter:
    """Writes pictures uint8 ``[H, W, 3]`` to a ``.gif`` or ``.mp4`` at ``fps``. A context manager.

    The file appears under its name when it is complete. A film without pictures leaves what was
    there.
    """

    def __init__(self, path: Path, fps: float) -> None:
        check_movie_path(path)
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp{path.suffix}")
        self._fps = fps
        self._gif: GifWriter | None = None
        self._mp4: Any = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._temporary, "wb")  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error}") from error

    def __enter__(self) -> MovieWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        is_complete = kind is None and (self._gif is not None or self._mp4 is not None)
        try:
            with self._writing(), self._file:
                if self._mp4 is not None:
                    self._mp4.close()
                elif self._gif is not None and is_complete:
                    self._gif.close()
            if is_complete:
                self._temporary.replace(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    @property
    def is_full(self) -> bool:
        """Whether the film has its greatest length."""
        return self._gif is not None and len(self._gif) >= MAX_GIF_FRAMES

    def append(self, picture: np.ndarray) -> None:
        """Adds a picture, uint8 ``[H, W, 3]``. Raises RunError if it cannot be written."""
        with self._writing():
            self._append(picture)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"Cannot write {self._path}: {error.strerror or error}") from error

    def _append(self, picture: np.ndarray) -> None:
        if self._path.suffix == ".gif":
            if self._gif is None:
                self._gif = GifWriter(self._file, self._fps)
            self._gif.append(picture)
            return
        if self._mp4 is None:
            # Even sizes, as the codec wants, without rescaling to multiples of 16.
            self._mp4 = imageio.get_writer(
                self._temporary, fps=self._fps, codec="libx264", macro_block_size=2
            )
        self._mp4.append_data(picture)


HEADER_HEIGHT = 24


def magnify(picture: np.ndarray, factor: int = 2) -> np.ndarray:
    """Enlarges ``[H, W, ...]``: every pixel becomes a square of ``factor`` pixels."""
    return picture.repeat(factor, 0).repeat(factor, 1)


def side_by_side(pictures: Sequence[np.ndarray], gap: int = 4) -> np.ndarray:
    """Joins pictures of one height in a row."""
    height = pictures[0].shape[0]
    divider = np.zeros((height, gap, 3), np.uint8)
    row = [pictures[0]]
    for picture in pictures[1:]:
        row += [divider, picture]
    return np.concatenate(row, axis=1)


def caption(picture: np.ndarray, text: str, height: int = HEADER_HEIGHT) -> np.ndarray:
    """Adds a line of text above a picture."""
    header = np.zeros((height, picture.shape[1], 3), np.uint8)
    cv2.putText(
        header,
        text,
        (6, height - 7),
        cv2.FONT_HERSHEY_SIMPLEX,
        0.45,
        (255, 255, 255),
        1,
        cv2.LINE_AA,
    )
    return np.concatenate([header, picture])


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
    return Film(path, actions_path, len(played), ended[0][1] if ended else None)


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
    elif film.num_steps == MAX_GIF_FRAMES and film.path.suffix == ".gif":
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
    for game in games:
        for episode in _show_games(config, trained, game):
            values = (trained.xpid, trained.model_id, game)
            print(*values, episode.episode_step, f"{episode.episode_return:g}", sep=",", flush=True)


def _show_games(config: EvaluationConfig, trained: Trained, game: str) -> Iterator[Any]:
    """Yields episodes until there are enough or the window is closed."""
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
        while num_played < config.num_episodes and not pygame.event.peek(pygame.QUIT):
            for _, episode in loop.step():
                num_played += 1
                yield episode


def has_display() -> bool:
    """Whether a window can be opened here."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
