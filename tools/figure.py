"""A stored figure: which files it shows, and the commands that make it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Figure(NamedTuple):
    """One or several stored files, and tables of a page, that the same commands make.

    Paths and glob patterns are relative to the checkout. Later fields may refer to earlier ones.
    """

    name: str
    """What ``make figures ARGS=...`` calls it."""
    page: str | None
    """The page that prints the commands; None for cards and notebooks, which have one each."""
    commands: tuple[str, ...]
    """Command lines, run one after the other."""
    inputs: tuple[str, ...]
    """Glob patterns of the files that it shows: agents, learning curves, measurements."""
    outputs: Mapping[str, str]
    """By stored file: the file that the commands write, relative to where they run."""
    sources: tuple[str, ...] = ()
    """Files that the commands rewrite, and so also need: notebooks."""
    tables: Mapping[str, str] = MappingProxyType({})
    """By name of a table in the page: the Markdown file that the commands write. The page has it
    between the lines ``<!-- table NAME -->`` and ``<!-- end -->``."""


def agents(*names: str) -> tuple[str, ...]:
    """The final checkpoints of shipped agents."""
    return tuple(f"models/{name}/{file}" for name in names for file in ("model.tar", "meta.json"))


def histories(*names: str) -> tuple[str, ...]:
    """The checkpoints of shipped agents over training."""
    return (*agents(*names), *(f"models/{name}/intermediate/*.tar" for name in names))


def curves(*names: str) -> tuple[str, ...]:
    """The records of the training of shipped agents."""
    return tuple(f"models/{name}/{file}" for name in names for file in ("logs.csv", "meta.json"))


def card(name: str, *notes: str, has_copies: bool = True) -> Figure:
    """The card of a shipped agent, with the scores that are recorded beside it.

    Args:
        name: the agent's.
        notes: names of files beside the card with text for it.
        has_copies: whether the agent is shipped with intermediate checkpoints.
    """
    return Figure(
        f"card_{name}",
        None,
        (f"python tools/model_card.py models/{name}",),
        (
            *(histories(name) if has_copies else agents(name)),
            *(f"models/{name}/{file}" for file in ("evaluation.json", "*.csv", *notes)),
        ),
        {
            f"models/{name}/{file}": f"models/{name}/{file}"
            for file in ("README.md", "curve.png", "frame.png")
        },
    )


def notebook(name: str, inputs: tuple[str, ...]) -> Figure:
    """A notebook with the outputs of its cells."""
    path = f"notebooks/{name}.ipynb"
    command = f"python tools/run_notebooks.py {path}"
    return Figure(name, None, (command,), inputs, {path: path}, sources=(path,))


FILTERS = "python -m torchbeast.analysis.analyze_resnet"
