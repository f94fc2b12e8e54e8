"""Plain values that a file holds: checked against type hints before anything is made of them."""

from __future__ import annotations

import math
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

# The longest text and list that is read: no name and no list of games or returns is longer.
MAX_TEXT, MAX_LIST = 4096, 1000
MAX_FLOAT = torch.finfo(torch.float32).max


def read(hint: Any, value: Any, name: str = "") -> Any:
    """Converts a value of a file to what a type hint describes.

    Args:
        hint: a NamedTuple, which is made of a dictionary and has a default for every field; a
            dictionary of hints, for the keys of a dictionary that may have others, too; or a type
            hint of numbers, printable text, tensors, lists, tuples and dictionaries. ``Annotated``
            adds the values that are allowed, or the lengths of a text, list or tuple.
        name: what the value is, for messages.

    Returns:
        The value, or a copy. What ``Any`` describes is not looked at.

    Raises:
        ValueError: the value is something else; the text names it.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        value = read(arguments[0], value, name)
        sized = isinstance(value, (str, list, tuple)) and isinstance(arguments[1], range)
        _require((len(value) if sized else value) in arguments[1], name, value)
    elif origin in (Union, types.UnionType):
        return _read_union(arguments, value, name)
    elif isinstance(hint, dict):
        _require(isinstance(value, dict), name, value)
        return {**value, **_read_fields(hint, {k: value[k] for k in hint if k in value}, name)}
    elif hasattr(hint, "_fields"):
        _require(isinstance(value, dict), name, value)
        return hint(**_read_fields(get_type_hints(hint, include_extras=True), value, name))
    elif origin is dict:
        _require(isinstance(value, dict), name, value)
        key, item = arguments
        return {read(key, k, name): read(item, v, f"{name}: {k!r}") for k, v in value.items()}
    elif origin in (list, tuple):
        _require(isinstance(value, (list, tuple)) and len(value) <= MAX_LIST, name, value)
        return origin(read(arguments[0], item, name) for item in value)
    elif hint is not Any:
        return _read_leaf(hint, value, name)
    return value


def _read_fields(hints: dict[str, Any], values: dict[Any, Any], name: str) -> dict[str, Any]:
    prefix = f"{name}: " if name else ""
    for key in values:
        if key not in hints:
            raise ValueError(f"{prefix}{key!r} is unknown")
    return {key: read(hints[key], value, prefix + key) for key, value in values.items()}


def _read_union(hints: tuple[Any, ...], value: Any, name: str) -> Any:
    for hint in hints[:-1]:
        try:
            return read(hint, value, name)
        except ValueError:
            continue
    return read(hints[-1], value, name)


def _read_leaf(kind: type, value: Any, name: str) -> Any:
    if isinstance(value, np.generic):  # In files of 2019.
        value = value.item()
    if kind is float and type(value) is int:
        value = float(value) if abs(value) <= MAX_FLOAT else value
    _require(isinstance(value, Tensor) if kind is Tensor else type(value) is kind, name, value)
    if kind is int:
        _require(-(2**63) <= value < 2**63, name, value)
    elif kind is float:  # Returns may be infinite.
        _require(not MAX_FLOAT < abs(value) < math.inf, name, value)
    elif kind is str:
        _require(value.isprintable() and len(value) <= MAX_TEXT, name, value)
    elif kind is Tensor:
        _require(value.layout == torch.strided, name, value)
    return value


def _require(condition: bool, name: str, value: Any) -> None:
    if not condition:
        plain = value is None or isinstance(value, (bool, int, float, str))
        shown = repr(value) if plain else f"a {type(value).__name__}"
        raise ValueError(f"{name} is {shown if len(shown) <= 60 else shown[:60] + '...'}")
