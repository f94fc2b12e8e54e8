"""The environments of one stream: stepped together, each replaced on its own when it fails."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from torchbeast.core.types import EnvStep
from torchbeast.envs.stream import EnvStream, describe_array
from torchbeast.serving.messages import Failure, WireError
from torchbeast.serving.observations import ObservationEncoder, encode_spec

# Of the text of a failure.
MAX_FAILURE_BYTES = 64 << 10
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class FailedEnvironmentError(Exception):
    """An environment failed and could not be replaced; ``args[0]`` is the message about it."""


class GymnasiumAdapter:
    """Makes any environment one of Gymnasium's, or says what is wrong with it."""

    def __init__(self, env: Any) -> None:
        """Wraps an environment of Gymnasium, or of gym before 0.26."""
        self._env = env
        self._is_checked = False

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Returns the first observation of an episode, and nothing about it."""
        result = self._env.reset()
        # Gymnasium's pair: nothing else is a tuple of two whose second is a dict.
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            result = result[0]
        if not self._is_checked:
            check_types(getattr(self._env, "observation_space", None), result)
            self._is_checked = True
        return result, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Returns observation, reward, terminated, truncated and info."""
        result = self._env.step(action)
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            raise TypeError("Environment's step() must return a tuple of 5 (or, old kind, of 4)")
        observation, reward, *ends, info = result
        try:
            reward = float(reward)
        except (TypeError, ValueError):
            raise TypeError(f"its reward is {reward!r}, which is no number") from None
        info = info if isinstance(info, dict) else {}
        if len(ends) == 1:
            is_cut = bool(ends[0]) and bool(info.get("TimeLimit.truncated"))
            return observation, reward, bool(ends[0]) and not is_cut, is_cut, info
        if isinstance(ends[1], int) and not isinstance(ends[1], bool):
            raise TypeError(
                f"its step() returned {ends[1]!r} for `truncated`, which is no bool; a game's "
                "index belongs into Server(task=...)"
            )
        return observation, reward, bool(ends[0]), bool(ends[1]), info

    def close(self) -> None:
        """Closes the environment, if it can be closed."""
        getattr(self._env, "close", lambda: None)()


def check_types(space: Any, observation: Any, path: str = "") -> None:
    """Raises WireError if an array has another element type than its space.

    What has no counterpart in the space is not checked.
    """
    spaces = getattr(space, "spaces", None)
    if isinstance(observation, dict):
        if spaces is not None and hasattr(spaces, "get"):
            for key, item in observation.items():
                check_types(spaces.get(key), item, f"{path}['{key}']")
    elif isinstance(observation, (tuple, list)):
        if isinstance(spaces, (tuple, list)) and len(spaces) == len(observation):
            for index, (sub, item) in enumerate(zip(spaces, observation, strict=True)):
                check_types(sub, item, f"{path}[{index}]")
    elif spaces is None and getattr(space, "dtype", None) is not None:
        array = np.asarray(observation)
        if array.dtype != space.dtype:
            raise WireError(
                f"its observation{path} is {describe_array(array)}, its observation_space says "
                f"{space.dtype}"
            )


class EnvironmentBatch:
    """The environments of one stream."""

    def __init__(
        self, env_init: Callable[[], Any], num_environments: int, newest_plane: bool
    ) -> None:
        """Makes no environment yet.

        Args:
            env_init: makes an environment.
            num_environments: how many.
            newest_plane: whether frame stacks may be sent by their newest plane.
        """
        self._env_init = env_init
        self._encoder = ObservationEncoder(num_environments, newest_plane)
        self._streams: list[EnvStream | None] = [None] * num_environments
        # Steps since each was made.
        self._steps = [0] * num_environments

    def open(self, reply: Any) -> None:
        """Makes the environments and fills ``reply`` with their first observations.

        Raises:
            FailedEnvironmentError: one cannot be made.
        """
        for index in range(len(self._streams)):
            try:
                row, arrays = self._start(index)
            except Exception as error:
                raise FailedEnvironmentError(self._fail(index, error)) from error
            self._append(index, row, arrays, reply)
        assert self._encoder.structure is not None
        reply.schema.observation.CopyFrom(encode_spec(self._encoder.structure.first))

    def step(self, actions: list[Any], reply: Any) -> None:
        """Fills ``reply`` with the results of actions. An environment that fails is replaced.

        Raises:
            FailedEnvironmentError: one cannot be replaced.
        """
        for index, action in enumerate(actions):
            self._steps[index] += 1
            stream = self._streams[index]
            assert stream is not None
            try:
                row = stream.step(action)
                arrays = self._encoder.check(row.frame)
            except Exception as error:
                self._replace(index, error, reply)
            else:
                self._append(index, row, arrays, reply)

    def close(self) -> None:
        """Closes all environments. What is wrong with one that goes is of no interest."""
        for index, stream in enumerate(self._streams):
            self._streams[index] = None
            if stream is not None:
                with contextlib.suppress(Exception):
                    stream.env.close()

    def _start(self, index: int) -> tuple[EnvStep, list[np.ndarray]]:
        """Makes an environment; returns its first row and the arrays of its observation."""
        self._steps[index] = 0
        stream = EnvStream(GymnasiumAdapter(self._env_init()), task=0)  # type: ignore[arg-type]
        self._streams[index] = stream
        row = stream.initial()
        # As in the C++ server: nothing has ended before the first step.
        return row._replace(done=False, game_over=False), self._encoder.check(row.frame)

    def _replace(self, index: int, error: Exception, reply: Any) -> None:
        failure = self._fail(index, error)
        stream = self._streams[index]
        if stream is not None:
            with contextlib.suppress(Exception):
                stream.env.close()
        try:
            row, arrays = self._start(index)
        except Exception as second:
            text = f"{_describe(error)}\nIts replacement failed, too:\n{_describe(second)}"
            failure.text = clean_text(text)
            raise FailedEnvironmentError(failure) from second
        self._append(index, row._replace(done=True, truncated=True), arrays, reply)
        reply.failures.append(failure)

    def _fail(self, index: int, error: Exception) -> Any:
        """The message about an environment that failed."""
        text = clean_text(_describe(error))
        return Failure(environment=index, step=self._steps[index], text=text)

    def _append(self, index: int, row: EnvStep, arrays: list[np.ndarray], reply: Any) -> None:
        is_first = row.done or row.episode_step == 0
        self._encoder.append(index, arrays, reply, episode_start=is_first)
        reply.reward.append(row.reward)
        reply.terminated.append(row.done and not row.truncated)
        reply.truncated.append(row.truncated)
        reply.game_over.append(row.game_over)
        reply.episode_step.append(row.episode_step)
        reply.episode_return.append(row.episode_return)


def _describe(error: Exception) -> str:
    """Why an environment failed: what is wrong with its observation, or where it raised."""
    if isinstance(error, WireError):
        return str(error)
    return "".join(traceback.format_exception(error))


def clean_text(text: str) -> str:
    """Returns a text that fits a message: its end, if it is long, without control characters."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_FAILURE_BYTES:
        text = "..." + data[-MAX_FAILURE_BYTES:].decode("utf-8", "ignore")
    else:
        text = data.decode()
    return _CONTROL_CHARACTERS.sub("?", text)
