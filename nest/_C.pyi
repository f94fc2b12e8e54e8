from collections.abc import Callable, Sequence
from typing import Any

def map(function: Callable[[Any], Any], structure: Any) -> Any:
    """Returns a structure of the same form with ``function(leaf)`` for every leaf."""

def map_many(function: Callable[[list[Any]], Any], *structures: Any) -> Any:
    """Maps over several structures: ``function`` gets the list of their leaves."""

def map_many2(function: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    """Maps over two structures: ``function`` gets a leaf of each."""

def flatten(structure: Any) -> list[Any]:
    """Returns all leaves in order."""

def pack_as(structure: Any, flat: Sequence[Any]) -> Any:
    """Returns the leaves ``flat`` in the form of ``structure``: the inverse of ``flatten``."""

def front(structure: Any) -> Any:
    """Returns the first leaf; raises ``ValueError`` if there is none."""
