"""Typed, frozen configurations made from the values of flags.

A configuration is a NamedTuple. Each of its fields is a value that has the name of its flag, or
another configuration. Flags keep the values of a command line in one flat namespace, and code
receives only the configuration that it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar, get_type_hints

Config = TypeVar("Config", bound=tuple)


def build(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Builds a configuration, and those within it, from values by field name.

    Args:
        kind: a NamedTuple class. Its type hints must be resolvable where it is defined.
        values: the value of every field that has no default. Other keys are ignored.

    Returns:
        The configuration.

    Raises:
        TypeError: a field has neither a value nor a default.
    """
    arguments: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and hasattr(hint, "_fields"):
            arguments[name] = build(hint, values)
        elif name in values:
            arguments[name] = values[name]
    make: Any = kind  # A NamedTuple takes keywords; its base, tuple, does not.
    return make(**arguments)


def flatten(config: Any) -> dict[str, Any]:
    """Returns the values of a configuration, and of those within it, by field name."""
    values: dict[str, Any] = {}
    for name, value in config._asdict().items():
        values.update(flatten(value) if hasattr(value, "_fields") else {name: value})
    return values


def describe_changes(before: Config, after: Config, ignored: Collection[str]) -> list[str]:
    """Describes the differences of two configurations as flags: ``--batch_size 8 -> 16``.

    Args:
        after: of the same type as ``before``.
        ignored: names of fields that are left out.

    Returns:
        A text for every value that differs. The value None is called default.
    """
    old, new = flatten(before), flatten(after)
    return [
        f"--{name} {_name_value(old[name])} -> {_name_value(new[name])}"
        for name in new
        if old[name] != new[name] and name not in ignored
    ]


def _name_value(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "default" if value is None else str(value)
