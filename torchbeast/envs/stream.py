"""What one environment step yields: scores, step counts and the kinds of episode ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from torchbeast.core.types import EnvStep


def check_finite(name: str, value: SupportsFloat) -> float:
    """Rounds a number to float32. Raises ValueError with its name if it is not finite then."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(float(value)))
    if not math.isfinite(rounded):
        raise ValueError(f"its {name} is {value}")
    return rounded


def check_truncated(truncated: Any) -> bool:
    """Returns whether a step ended its episode by a limit. Raises ValueError for an integer.

    The C++ server says why.
    """
    if isinstance(truncated, (int, np.integer)) and not isinstance(truncated, bool):
        raise ValueError(f"its step() returned {truncated} for `truncated`, which is no bool")
    return bool(truncated)


def is_game_over(info: Mapping[str, Any]) -> bool:
    """Whether the end of an episode is that of the game; environments need not say."""
    flag = info.get("game_over")
    return flag is None or bool(flag)


def describe_array(array: np.ndarray | gymnasium.spaces.Box) -> str:
    """Names type and shape of an array, or of a space's arrays, as in ``uint8[4, 84, 84]``."""
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


def check_observation(frame: Any, space: gymnasium.spaces.Box) -> np.ndarray:
    """Returns an observation of a space as an array whose strides PyTorch accepts.

    Raises ValueError if it has another type or shape, or numbers that are not finite: these make
    the network's output no number.
    """
    array = np.ascontiguousarray(frame)
    if array.dtype != space.dtype or array.shape != space.shape:
        raise ValueError(
            f"its observation is {describe_array(array)}, its observation_space says "
            f"{describe_array(space)}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("its observation is not finite")
    return array


class EnvStream:
    """An environment as an endless sequence of rows. It is reset where an episode ends.

    The row after the step that terminates an episode has the new episode's first observation, and
    the reward and the score of the episode before. The step that truncates one leads to a row with
    its final observation. The action there is ignored, and the next row is the new episode's first.
    Scores and step counts are those of full games: they continue over a lost life (``done`` without
    ``game_over``).

    The C++ environment server makes the same rows, but for the first: there it does not set
    ``done`` and ``game_over``.
    """

    def __init__(self, env: gymnasium.Env, task: int) -> None:
        """Wraps ``env``, the game with index ``task`` in the agent's task list."""
        self.env = env
        self._task = task
        self._steps, self._return = 0, 0.0
        # After the last step of a truncated episode: whether the full game ended with it.
        self._cut_off: bool | None = None
        space = getattr(env, "observation_space", None)
        self._space = space if isinstance(space, gymnasium.spaces.Box) else None

    def initial(self) -> EnvStep:
        """Resets the environment; the row before the first step. Raises as :meth:`step` does."""
        return self._row(self.env.reset()[0], done=True, game_over=True)

    def step(self, action: int) -> EnvStep:
        """Steps the environment and returns the row that ``action`` leads to.

        Raises:
            ValueError: its reward, return or observation is not finite, its observation has another
                type or shape than its observation space, or ``truncated`` is an integer.
        """
        if self._cut_off is not None:
            game_over, self._cut_off = self._cut_off, None
            return self._row(self.env.reset()[0], action, done=True, game_over=game_over)
        frame, reward, terminated, truncated, info = self.env.step(action)
        reward, truncated = check_finite("reward", reward), check_truncated(truncated)
        self._steps += 1
        self._return += reward
        check_finite("return", self._return)
        game_over = is_game_over(info)
        if terminated:
            frame = self.env.reset()[0]
            return self._row(frame, action, reward, done=True, game_over=game_over)
        if truncated:
            self._cut_off = game_over
        return self._row(frame, action, reward, truncated=truncated)

    def _row(
        self,
        frame: Any,
        action: int = 0,
        reward: float = 0.0,
        *,
        done: bool = False,
        truncated: bool = False,
        game_over: bool = False,
    ) -> EnvStep:
        row = EnvStep(
            frame=frame if self._space is None else check_observation(frame, self._space),
            reward=reward,
            done=done,
            task=self._task,
            episode_step=self._steps,
            episode_return=self._return,
            truncated=truncated,
            game_over=game_over,
            last_action=action,
        )
        if game_over:
            self._steps, self._return = 0, 0.0
        return row
