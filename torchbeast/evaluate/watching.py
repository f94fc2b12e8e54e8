"""Watching a trained agent: in a window, or recorded as a GIF or MP4."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.evaluate.actions import read_actions
from torchbeast.evaluate.config import EvaluationConfig
from torchbeast.evaluate.movies import MovieWriter
from torchbeast.evaluate.pictures import caption, magnify
from torchbeast.evaluate.playing import (
    GameLoop,
    Trained,
    choose_games,
    load_trained,
    make_games,
)
from torchbeast.records.checkpoint import run_path
from torchbeast.runtime.threads import StopSignals


def picture_of(env: gymnasium.Env) -> np.ndarray:
    """What the game shows, in colour, twice as large."""
    return magnify(np.asarray(env.render()))


class Captioned(gymnasium.Wrapper):
    """Writes the game's name, score and step above the picture."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._score, self._step = 0.0, 0
        self._game_over = True

    def reset(self, **kwargs: Any) -> Any:
        if self._game_over:  # Not where only a life was lost.
            self._score, self._step = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._score += float(result[1])
        self._step += 1
        self._game_over = bool(result[4].get("game_over", True))
        return result

    def render(self) -> Any:
        text = f"{self._name}   {self._score:g}   step {self._step}"
        return caption(picture_of(self.env), text)


def frames_per_second(env: gymnasium.Env) -> float:
    """Agent steps per second at the game's own speed."""
    return float(env.metadata.get("render_fps") or 30)


def movie_path(config: EvaluationConfig, trained: Trained, game: str, num_games: int) -> Path:
    """``--movie``, else ``movies/<xpid>_<step>_<env>.gif`` in the run's directory."""
    if config.movie is None:
        name = f"{trained.xpid}_{trained.model_id}_{game.replace('/', '-').replace(':', '-')}.gif"
        return run_path(config.trained.savedir, trained.xpid) / "movies" / name
    if num_games > 1:
        raise UsageError(f"--movie is one file; choose one of the {num_games} games with --env")
    return Path(config.movie).expanduser()


def record(config: EvaluationConfig, signals: StopSignals) -> None:
    """``--mode record``: one whole game in colour, per game; the actions go into a file beside it.

    ``--actions`` with that file plays the same game again under the same ``--seed``. A signal ends
    the recording; what was recorded until then is saved.
    """
    _record_games(config, load_trained(config.trained), signals)


def _record_games(config: EvaluationConfig, trained: Trained, signals: StopSignals) -> None:
    games = choose_games(trained, config.env)
    paths = [movie_path(config, trained, game, len(games)) for game in games]
    with signals:
        for game, path in zip(games, paths, strict=True):
            if signals.received is None:
                _record_game(config, trained, game, path, signals)


def _record_game(
    config: EvaluationConfig, trained: Trained, game: str, path: Path, signals: StopSignals
) -> None:
    actions = read_actions(config.actions, trained.agent.config.num_actions)
    (env,) = make_games(trained, game, seed=config.seed, render_mode="rgb_array")
    loop = GameLoop(trained, game, [env], greedy=config.greedy, seed=config.seed, actions=actions)
    played: list[int] = []
    with contextlib.closing(env), MovieWriter(path, frames_per_second(env)) as movie:
        ended: list[Any] = []
        while not ended and not movie.is_full and signals.received is None:
            movie.append(picture_of(env))
            ended = loop.step()
            played.append(int(loop.last_actions[0]))
    actions_path = path.with_suffix(".actions")
    actions_path.write_text("\n".join(map(str, played)) + "\n")
    if ended:
        episode = ended[0][1]
        print(
            f"{path}: {game}, return {episode.episode_return:g} in {episode.episode_step} steps; "
            f"actions in {actions_path}"
        )
    elif signals.received is not None:
        print(f"{path}: the first {len(played):,} steps of {game}, until it was interrupted")
    else:
        print(f"{path}: the first {len(played):,} steps of {game}; an .mp4 holds whole long games")


def render(config: EvaluationConfig, signals: StopSignals) -> None:
    """``--mode test_render``: games in a window; recorded where there is no display."""
    trained = load_trained(config.trained)
    if not has_display():
        print("No display: recording instead", file=sys.stderr)
        _record_games(config, trained, signals)
        return
    for game in choose_games(trained, config.env):
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
        shown = 0
        while shown < config.num_episodes and not pygame.event.peek(pygame.QUIT):
            for _, episode in loop.step():
                shown += 1
                yield episode


def has_display() -> bool:
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
