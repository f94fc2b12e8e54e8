"""The steps of a game and their saliency maps, of one agent or of several side by side."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchbeast.analysis.results import write_arrays
from torchbeast.analysis.saliency.maps import Explainer, Score, Step
from torchbeast.runtime.progress_bar import track
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.text import counted

NO_MASKS = np.empty((0, 0, 0), np.float32)


@dataclass
class SaliencyFilm:
    """The steps of one agent's game and the maps that are drawn of them."""

    name: str
    scores: Sequence[Score]
    steps: list[Step] = field(default_factory=list)  # Without their outputs under masks.
    # By score, one of each step, float32 [rows, columns].
    maps: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def append(self, step: Step) -> None:
        """Adds a step and its maps, and drops its outputs under masks, which take most memory."""
        for score in self.scores:
            self.maps.setdefault(score.name, []).append(score(step.outputs, step.action))
        outputs = step.outputs._replace(masked_logits=NO_MASKS, masked_normalized_values=NO_MASKS)
        self.steps.append(dataclasses.replace(step, outputs=outputs))

    @property
    def values(self) -> np.ndarray:
        """The game's own value at each step, in units of return."""
        return np.array([step.outputs.values[step.subject.head] for step in self.steps])


def make_film(name: str, steps: Iterable[Step], scores: Sequence[Score]) -> SaliencyFilm:
    """Makes a film of steps."""
    film = SaliencyFilm(name, scores)
    for step in steps:
        film.append(step)
    return film


class Watcher(NamedTuple):
    """An agent that watches a game, what is shown of it, and where that goes."""

    explainer: Explainer
    scores: tuple[Score, ...]
    steps: Iterator[Step]
    directory: Path


def watch(
    watchers: Sequence[Watcher],
    views: Iterable[tuple[Step, ...]],
    num_frames: int,
    signals: StopSignals,
) -> list[SaliencyFilm]:
    """Makes the maps of all agents, frame by frame, until a signal comes.

    Args:
        views: of each frame the agents' steps.
        num_frames: how many frames there are at most.
        signals: entered; looked at after each frame.

    Returns:
        A film of each agent, equally long.
    """
    films = [SaliencyFilm(watcher.explainer.trained.xpid, watcher.scores) for watcher in watchers]
    for view in track(views, total=num_frames, unit="frames"):
        for film, step in zip(films, view, strict=True):
            film.append(step)
        if signals.received is not None:
            break
    if signals.received is not None:
        print(f"Saving {counted(len(films[0].steps), 'frame')} ({signals.HINT})", file=sys.stderr)
    return films


def save_scores(path: Path, film: SaliencyFilm, facts: Mapping[str, Any]) -> None:
    """Writes an ``.npz`` with the maps of each score, the agent's outputs and ``facts``."""
    steps = film.steps
    subject = steps[0].subject
    arrays: dict[str, Any] = {
        "step": [step.step for step in steps],
        "action": [step.action for step in steps],
        "action_names": subject.action_names,
        "logits": np.stack([step.outputs.logits for step in steps]),
        "values": np.stack([step.outputs.values for step in steps]),
        "normalized_values": np.stack([step.outputs.normalized_values for step in steps]),
        "tasks": subject.tasks,
        "head": subject.head,
        **{name.replace(":", "_"): np.stack(maps) for name, maps in film.maps.items()},
        **facts,
    }
    write_arrays(path, arrays)
