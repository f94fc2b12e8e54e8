"""Several agents that watch one game, frame by frame, until it ends or a signal comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torchbeast.analysis.progress import track
from torchbeast.analysis.saliency.drawing import Film, make_film
from torchbeast.analysis.saliency.explain import Explainer, Step
from torchbeast.analysis.saliency.scores import Score
from torchbeast.runtime.text import counted
from torchbeast.runtime.threads import StopSignals


class Watcher(NamedTuple):
    """An agent that watches a game, what is shown of it, and where that goes."""

    explainer: Explainer
    scores: tuple[Score, ...]
    steps: Iterator[Step]
    directory: Path


def watch(watchers: Sequence[Watcher], num_frames: int, signals: StopSignals) -> list[Film]:
    """Makes the maps of all agents, frame by frame, until a signal comes.

    Args:
        watchers: the agents.
        num_frames: how many frames they watch at most.
        signals: entered; looked at after each frame.

    Returns:
        A film of each agent, equally long, of at least one frame.

    Raises:
        UsageError: the game ends before the first frame.
    """
    frames = []
    views = zip(*(watcher.steps for watcher in watchers), strict=False)
    for frame in track(views, total=num_frames, unit="frames"):
        frames.append(frame)
        if signals.received is not None:
            break
    if signals.received is not None:
        print(f"Saving {counted(len(frames), 'frame')} ({signals.HINT})", file=sys.stderr)
    return [
        make_film(watcher.explainer.trained.xpid, steps, watcher.scores)
        for watcher, steps in zip(watchers, zip(*frames, strict=True), strict=False)
    ]
