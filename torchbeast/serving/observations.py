"""Observations on their way into replies, and actions out of requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from torchbeast.envs.stream import are_finite, describe_array
from torchbeast.serving.messages import (
    DTYPES,
    MAX_KEY_BYTES,
    MAX_LEAVES,
    MAX_RANK,
    NUMBERS,
    Spec,
    WireError,
)

# A frame stack has between two and this many planes.
MAX_PLANES = 64


def flatten(observation: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yields the arrays of a nest of tuples, lists and dicts, with where they are in it.

    Dicts are in the order of their sorted keys.

    Raises:
        WireError: something in it is no array of a type that can be sent.
    """
    if isinstance(observation, (tuple, list)):
        for index, item in enumerate(observation):
            yield from flatten(item, f"{path}[{index}]")
    elif isinstance(observation, dict):
        for key in sorted(observation):
            yield from flatten(observation[key], f"{path}['{key}']")
    else:
        array = np.asarray(observation)
        if array.dtype.name not in NUMBERS:
            raise WireError(
                f"its observation{path} is {array.dtype.name}: arrays must be of bool, uint8, int8 "
                "to int64, or a float type"
            )
        yield path, array


def describe_structure(observation: Any) -> str:
    """Describes the topmost container of a nest.

    >>> describe_structure(({}, 1)), describe_structure(0)
    ('a sequence of 2', 'a leaf')
    """
    if isinstance(observation, (tuple, list)):
        return f"a sequence of {len(observation)}"
    if isinstance(observation, dict):
        return f"a mapping of {len(observation)}"
    return "a leaf"


def encode_spec(observation: Any) -> Any:
    """Returns the structure of an observation as a ``Spec``."""
    spec = Spec()
    _fill_spec(spec, observation)
    return spec


def _fill_spec(spec: Any, observation: Any) -> None:
    if isinstance(observation, (tuple, list)):
        spec.sequence.SetInParent()
        for item in observation:
            _fill_spec(spec.sequence.items.add(), item)
    elif isinstance(observation, dict):
        spec.mapping.SetInParent()
        for key in sorted(observation):
            spec.mapping.keys.append(key)
            _fill_spec(spec.mapping.items.add(), observation[key])
    else:
        array = np.asarray(observation)
        spec.array.dtype = NUMBERS[array.dtype.name]
        spec.array.shape.extend(array.shape)


class Structure(NamedTuple):
    """What every observation of a stream looks like."""

    first: Any
    """The first observation."""
    arrays: tuple[str, ...]
    """Of its arrays, in order, type and shape."""


class ObservationEncoder:
    """Writes the observations of a stream's environments into replies.

    Where the client allows it, a frame stack that moved by one plane is sent as its newest plane.
    """

    def __init__(self, num_environments: int, newest_plane: bool) -> None:
        """Knows no structure yet: the first observation fixes it."""
        self._num_environments = num_environments
        self._newest_plane = newest_plane
        self.structure: Structure | None = None
        # By leaf; and by leaf and environment, the observation before.
        self._may_move: list[bool] = []
        self._previous: list[list[np.ndarray | None]] = []

    def check(self, observation: Any) -> list[np.ndarray]:
        """Returns the arrays of an observation.

        Raises:
            WireError: it is not like the first one, or cannot be sent.
        """
        leaves = list(flatten(observation))
        arrays = [array for _, array in leaves]
        for path, array in leaves:
            if not are_finite(array):
                raise WireError(f"its observation{path} is not finite")
        if self.structure is None:
            self._fix_structure(observation, arrays)
            return arrays
        _check_structure(self.structure.first, observation)
        for (path, array), expected in zip(leaves, self.structure.arrays, strict=True):
            found = describe_array(array)
            if found != expected:
                raise WireError(f"its observation{path} is {found}, the first one was {expected}")
        return arrays

    def append(
        self, environment: int, arrays: list[np.ndarray], reply: Any, *, episode_start: bool
    ) -> None:
        """Adds an environment's observation to a reply. Environments come in their order.

        Args:
            environment: its index in the stream.
            arrays: from :meth:`check`.
            reply: of the step.
            episode_start: whether the observation is the first of an episode.
        """
        while len(reply.leaves) < len(arrays):
            reply.leaves.add()
        for index, (array, leaf) in enumerate(zip(arrays, reply.leaves, strict=True)):
            newest_only = False
            if self._may_move[index]:
                previous = self._previous[index][environment]
                if previous is not None:
                    newest_only = np.array_equal(previous[1:], array[:-1])
                    # In mid-episode a stack moves by exactly one plane; what does not is no stack.
                    if not newest_only and not episode_start:
                        self._may_move[index] = False
                self._previous[index][environment] = array.copy()
            leaf.data += (array[-1:] if newest_only else array).tobytes()
            if newest_only and not leaf.newest_only:
                leaf.newest_only = bytes(self._num_environments)
            if newest_only:
                flags = bytearray(leaf.newest_only)
                flags[environment] = 1
                leaf.newest_only = bytes(flags)

    def _fix_structure(self, observation: Any, arrays: list[np.ndarray]) -> None:
        if not 1 <= len(arrays) <= MAX_LEAVES:
            raise WireError(f"its observation has {len(arrays)} arrays, at most {MAX_LEAVES}")
        if max(array.ndim for array in arrays) > MAX_RANK:
            raise WireError(f"observation of more than {MAX_RANK} dimensions")
        if _key_bytes(observation) > MAX_KEY_BYTES:
            raise WireError(f"observation whose keys have more than {MAX_KEY_BYTES} bytes")
        self.structure = Structure(observation, tuple(map(describe_array, arrays)))
        self._may_move = [self._newest_plane and _may_be_frame_stack(array) for array in arrays]
        self._previous = [[None] * self._num_environments for _ in arrays]


def _key_bytes(observation: Any) -> int:
    """The size of the keys of all dicts in an observation."""
    if isinstance(observation, dict):
        return sum(len(key.encode()) + _key_bytes(item) for key, item in observation.items())
    if isinstance(observation, (tuple, list)):
        return sum(map(_key_bytes, observation))
    return 0


def _check_structure(first: Any, observation: Any, path: str = "") -> None:
    kinds = describe_structure(first), describe_structure(observation)
    if isinstance(first, dict) and isinstance(observation, dict):
        kinds = ", ".join(sorted(first)), ", ".join(sorted(observation))
    if kinds[0] != kinds[1]:
        raise WireError(
            f"its observation differs from the first one: {path}{kinds[0]} against {kinds[1]}"
        )
    if isinstance(first, dict):
        for key in first:
            _check_structure(first[key], observation[key], f"['{key}']: ")
    elif isinstance(first, (tuple, list)):
        for one, other in zip(first, observation, strict=True):
            _check_structure(one, other, path)


def _may_be_frame_stack(array: np.ndarray) -> bool:
    return (
        array.dtype == np.uint8
        and array.ndim == 3
        and 2 <= array.shape[0] <= MAX_PLANES
        and array.size > 0
    )


def decode_actions(request: Any, num_environments: int) -> list[Any]:
    """Returns the actions of a request: an integer as int, anything else as an array.

    Raises:
        WireError: their type, shape and number of bytes do not fit.
    """
    spec = request.action_spec
    if spec.dtype not in DTYPES or len(spec.shape) > MAX_RANK or min(spec.shape, default=0) < 0:
        raise WireError("actions of a type or shape that cannot be")
    dtype, shape = np.dtype(DTYPES[spec.dtype]), tuple(spec.shape)
    expected = num_environments * dtype.itemsize * int(np.prod(shape, dtype=object))
    if len(request.actions) != expected:
        raise WireError(f"expected {expected} bytes of actions, got {len(request.actions)}")
    actions = np.frombuffer(request.actions, dtype).reshape(num_environments, *shape)
    if dtype.kind in "iu" and actions[0].size == 1:
        return [int(action.item()) for action in actions]
    return [action.copy() for action in actions]
