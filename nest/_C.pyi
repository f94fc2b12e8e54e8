from collections.abc import Callable, Sequence
from typing import Any

def map(function: Callable[[Any], Any], structure: Any) -> Any:
    """A structure of the same form with ``function(leaf)`` for every leaf."""

def map_many(function: Callable[[list[Any]], Any], *structures: Any) -> Any:
    """As ``map`` over several structures: ``function`` gets the list of their leaves."""

def map_many2(function: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    """As ``map`` over two structures: ``function`` gets a leaf of each."""

def flatten(structure: Any) -> list[Any]:
    """All leaves in order."""

def pack_as(structure: Any, flat: Sequence[Any]) -> Any:
    """The inverse of ``flatten``: ``flat`` in the form of ``structure``."""

def front(structure: Any) -> Any:
    """The first leaf; ``ValueError`` if there is none."""
