"""How much an agent needs the objects of one kind, over hundreds of frames of several games.

The objects of a colour are taken away, all at once. A colour is a kind of object: games of the
Atari 2600 draw the ball in one colour and the opponent in another.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from torchbeast.analysis.aggregates import Interval, percentile_interval, resample_means
from torchbeast.analysis.saliency.perturbation import compute_outputs
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.envs.preprocessing import FRAME_FORMATS
from torchbeast.play.agents import Trained
from torchbeast.play.game_loop import watch_game
from torchbeast.runtime.text import format_rows

STEPS_APART = 4  # Neighbouring frames are nearly the same.
NUM_PICTURES = 4  # As many as any frame format has.
SMALLEST = 4  # Pixels of an object.
LARGEST_SHARE = 0.05  # What covers more of the picture is scenery.
MARGIN = 2  # Pixels around an object, for what resizing and the maximum of two frames add.
RAREST = 0.05  # Objects that are seen in a smaller share of the frames are left out.
MOST_KINDS = 8
FEWEST_GAMES = 3  # That show a kind; with fewer an interval says nothing.

Colour = tuple[int, int, int]


class Moment(NamedTuple):
    """One step of a game, as an agent sees it."""

    pictures: Sequence[np.ndarray]  # uint8 [H, W, 3], what the game showed, the newest last.
    inputs: EnvOutput  # What the agent sees, leaves [1, 1, ...].
    state: tuple[Tensor, ...]  # Its recurrent state before.

    @property
    def picture(self) -> np.ndarray:
        """The newest picture."""
        return self.pictures[-1]


class Place(NamedTuple):
    """An object's rectangle in the picture, to before ``bottom`` and ``right``."""

    top: int
    left: int
    bottom: int
    right: int


Moments = Sequence[Moment]  # The moments of one game.
# Places in each picture of a moment, the newest picture last; empty if that one shows no object of
# the kind.
Places = Sequence[Sequence[Place]]
# By colour: the places of the objects in each moment of each game.
Kinds = Mapping[Colour, Sequence[Sequence[Places]]]


class Effect(NamedTuple):
    """What taking the objects of a kind away changes; means over moments that show some.

    The intervals are of a bootstrap over games; NaN for fewer than ``FEWEST_GAMES``.
    """

    policy: float
    """Total variation distance of the policies, from 0 to 1."""
    policy_interval: Interval
    value: float
    """Size of the change of the value, in standard deviations of the agent's values."""
    value_interval: Interval


def watch_moments(trained: Trained, game: str, *, first_frame: int, **options: Any) -> list[Moment]:
    """Returns every ``STEPS_APART``-th step of a game whose last pictures are known.

    ``options`` are those of :func:`watch_game`, which raises UsageError if the game ends before.
    """
    pictures: deque[np.ndarray] = deque(maxlen=NUM_PICTURES)
    moments = []
    for seen in watch_game(trained, game, first_frame=first_frame, **options):
        if seen.inputs.done.item():  # Where a life starts with FIRE, the agent sees one more.
            pictures.clear()
        pictures.append(seen.picture)
        if len(pictures) == NUM_PICTURES and (seen.step - first_frame) % STEPS_APART == 0:
            moments.append(Moment(tuple(pictures), seen.inputs, seen.state))
    return moments


def find_kinds(games: Sequence[Moments]) -> Kinds:
    """Finds the objects of all moments by their colours, the most frequent kind first.

    An object is a connected place that differs from the median picture and from the picture's most
    frequent colour, and that has not stayed in its place since the moment before, as digits and
    scenery do. Its colour is the most frequent one in it. The first moment of a game has none.
    """
    if max(map(len, games), default=0) < 2:
        raise UsageError(
            f"--num_frames: fewer than {2 * STEPS_APART + 1} frames of one life show no movement"
        )
    median = np.median(np.stack([m.picture for game in games for m in game]), axis=0)
    moved = [find_moved(game, median) for game in games]
    colours = {c for game in moved for pictures in game for p in pictures for c in p.values()}
    unmixed = unmix(colours, most_frequent_colour(median))
    found: dict[Colour, list[list[Places]]] = {}
    counts: Counter[Colour] = Counter()
    for i, game in enumerate(moved):
        for j, pictures in enumerate(game):
            places = [[(place, unmixed[c]) for place, c in p.items()] for p in pictures]
            for colour in dict.fromkeys(c for _, c in places[-1]):
                if colour not in found:
                    found[colour] = [[[] for _ in other] for other in games]
                counts[colour] += 1
                found[colour][i][j] = [[p for p, c in in_one if c == colour] for in_one in places]
    total = sum(map(len, games))
    kinds = [c for c, count in counts.most_common(MOST_KINDS) if count >= RAREST * total]
    if not kinds:
        raise UsageError("No object was found in these frames")
    return {colour: found[colour] for colour in kinds}


def find_moved(moments: Moments, median: np.ndarray) -> list[list[dict[Place, Colour]]]:
    """Returns the places in each picture of each moment but those unmoved since the one before.

    In the first moment, which has none before it, there are none.
    """
    result: list[list[dict[Place, Colour]]] = []
    before: set[Place] | None = None
    for moment in moments:
        pictures = [find_places(picture, median) for picture in moment.pictures]
        newest = set(pictures[-1])
        unmoved = set().union(*pictures) if before is None else before & newest
        before = newest
        result.append([{p: c for p, c in x.items() if p not in unmoved} for x in pictures])
    return result


def unmix(colours: Set[Colour], background: Colour) -> dict[Colour, Colour]:
    """Returns the colour of the object that is drawn in each colour.

    A picture is the maximum of two screens: where a fast object was in one of them only, its colour
    is mixed with that of the background.
    """
    result = {colour: colour for colour in colours}
    for colour in sorted(colours):
        mixed = tuple(map(max, colour, background))
        if mixed != colour and mixed in result:
            result[mixed] = colour
    return result


def most_frequent_colour(picture: np.ndarray) -> Colour:
    """Returns the colour of most pixels."""
    colours, numbers = np.unique(picture.reshape(-1, 3), axis=0, return_counts=True)
    red, green, blue = colours[numbers.argmax()].astype(int).tolist()
    return (red, green, blue)


def find_places(picture: np.ndarray, median: np.ndarray) -> dict[Place, Colour]:
    """Returns the connected places of a picture that are neither background nor large."""
    colours, indices, numbers = np.unique(
        picture.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    indices = indices.reshape(picture.shape[:2])
    differs = (picture != median).any(axis=-1) & (indices != numbers.argmax())
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(differs.astype(np.uint8), connectivity=8)
    result = {}
    for label, (left, top, width, height, area) in enumerate(boxes.tolist()):
        if label and area >= SMALLEST and width * height <= LARGEST_SHARE * indices.size:
            place = Place(top, left, top + height, left + width)
            part = indices[top : place.bottom, left : place.right]
            inside = part[labels[top : place.bottom, left : place.right] == label]
            red, green, blue = colours[np.bincount(inside).argmax()].tolist()
            result[place] = (red, green, blue)
    return result


def remove(
    frame: np.ndarray, background: np.ndarray, places: Places, picture: tuple[int, ...]
) -> np.ndarray:
    """Replaces places by the background in an observation ``[C, H, W]``.

    Args:
        frame: the observation: of each picture as many planes, the newest last.
        background: of the same shape.
        places: in each picture.
    """
    rows, columns = frame.shape[1] / picture[0], frame.shape[2] / picture[1]
    result = frame.copy()
    for planes, old, in_picture in zip(
        np.split(result, len(places)), np.split(background, len(places)), places, strict=True
    ):
        for place in in_picture:
            top, left = int(place.top * rows), int(place.left * columns)
            bottom, right = math.ceil(place.bottom * rows), math.ceil(place.right * columns)
            down = slice(max(top - MARGIN, 0), bottom + MARGIN)
            across = slice(max(left - MARGIN, 0), right + MARGIN)
            planes[:, down, across] = old[:, down, across]
    return result


@torch.inference_mode()
def measure(trained: Trained, game: str, seen: Sequence[Moments], kinds: Kinds) -> list[Effect]:
    """Measures what an agent does without the objects of each kind.

    Args:
        seen: of each game played, the moments as this agent sees them.

    Returns:
        An effect for each kind, in their order.
    """
    head = trained.head(game)
    num_pictures = FRAME_FORMATS[trained.observation.frame_format].num_pictures
    frames = [moment.inputs.frame[0, 0].numpy() for moments in seen for moment in moments]
    background = np.median(np.stack(frames), axis=0).astype(frames[0].dtype)
    values: list[float] = []
    # By kind and game: pairs of changes of the policy and of the value.
    changes: dict[Colour, list[list[tuple[float, float]]]] = {
        colour: [[] for _ in seen] for colour in kinds
    }
    for i, moments in enumerate(seen):
        for j, moment in enumerate(moments):
            frame = moment.inputs.frame[0, 0].numpy()
            shown = [colour for colour in kinds if kinds[colour][i][j]]
            without = [
                remove(frame, background, kinds[colour][i][j][-num_pictures:], moment.picture.shape)
                for colour in shown
            ]
            changed = torch.from_numpy(np.stack([frame, *without])).float()
            heads = compute_outputs(trained.agent, changed, moment.inputs, moment.state)
            logits, value, _ = (x.numpy() for x in heads)
            policies = softmax(logits, axis=-1)
            values.append(float(value[0, head]))
            for k, colour in enumerate(shown, 1):
                distance = 0.5 * float(np.abs(policies[k] - policies[0]).sum())
                changes[colour][i].append((distance, abs(float(value[k, head] - value[0, head]))))
    unit = np.array([1.0, max(float(np.std(values)), 1e-12)])
    return [
        _summarize([np.array(pairs).reshape(-1, 2) / unit for pairs in of_kind])
        for of_kind in changes.values()
    ]


def _summarize(changes: Sequence[np.ndarray]) -> Effect:
    """Computes means and intervals of changes ``[N, 2]`` of each game."""
    shown = [game for game in changes if len(game)]
    sums = np.array([game.sum(axis=0) for game in shown])
    counts = np.array([len(game) for game in shown])
    policy, value = sums.sum(axis=0) / counts.sum()
    intervals = [Interval(math.nan, math.nan)] * 2
    if len(shown) >= FEWEST_GAMES:
        # A game in which the kind is often seen weighs more.
        *drawn, weights = resample_means(np.column_stack([sums, counts]).T)
        intervals = [percentile_interval(x / weights) for x in drawn]
    return Effect(float(policy), intervals[0], float(value), intervals[1])


def format_table(kinds: Kinds, effects: Mapping[str, Sequence[Effect]]) -> list[str]:
    """Returns the lines of a table with a row for each kind and two columns for each agent."""
    columns = [(name, what) for what in ("policy", "value") for name in effects]
    rows = [["object", "frames", *(f"{name}, {what}" for name, what in columns)]]
    for k, (colour, games) in enumerate(kinds.items()):
        count = sum(bool(places) for game in games for places in game)
        cells = [_format(effects[name][k], what) for name, what in columns]
        rows.append([f"#{bytes(colour).hex()}", str(count), *cells])
    return format_rows(rows)


def _format(effect: Effect, what: str) -> str:
    mean, (low, high) = getattr(effect, what), getattr(effect, f"{what}_interval")
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]" if np.isfinite(low) else f"{mean:.2f}"


def draw_effects(
    games: Sequence[Moments], kinds: Kinds, effects: Mapping[str, Sequence[Effect]]
) -> Any:
    """Draws each kind's effect on each agent, with its interval, beside a picture of an object."""
    from torchbeast.analysis.panels import PALETTE, add_legend, make_panels

    titles = ["policy: total variation distance", "value: change in standard deviations"]
    figure, panels = make_panels(titles, width=4.2, height=0.6 + 0.55 * len(kinds))
    for panel, what in zip(panels, ("policy", "value"), strict=True):
        for a, (name, of_agent) in enumerate(effects.items()):
            offset = 0.22 * (a - (len(effects) - 1) / 2)
            means = np.array([getattr(effect, what) for effect in of_agent])
            ends = np.array([getattr(effect, f"{what}_interval") for effect in of_agent])
            error = np.abs(ends.T - means)  # Not a number, and not drawn, for kinds of few games.
            rows = np.arange(len(kinds)) + offset
            shade = PALETTE[a % len(PALETTE)]
            panel.errorbar(means, rows, xerr=error, fmt="o", ms=5, color=shade, label=name)
        panel.set_ylim(len(kinds) - 0.5, -0.5)
        panel.set_xlim(left=0)
        panel.set_yticks([])
    for k, (colour, places) in enumerate(kinds.items()):
        share = 1 / len(kinds)
        inset = panels[0].inset_axes((-0.24, 1 - (k + 0.9) * share, 0.2, 0.8 * share))
        inset.imshow(_example(games, places))
        inset.set_axis_off()
        inset.set_title(f"#{bytes(colour).hex()}", fontsize="xx-small", pad=1)
    add_legend(figure)
    return figure


def _example(games: Sequence[Moments], places: Sequence[Sequence[Places]]) -> np.ndarray:
    """Cuts an object of middle size out of its picture, with a margin."""
    found = [
        (place, games[i][j].picture)
        for i, game in enumerate(places)
        for j, of_moment in enumerate(game)
        for place in (of_moment[-1] if of_moment else ())
    ]
    found.sort(key=lambda x: (x[0].bottom - x[0].top) * (x[0].right - x[0].left))
    (top, left, bottom, right), picture = found[len(found) // 2]
    margin = 3
    return picture[max(top - margin, 0) : bottom + margin, max(left - margin, 0) : right + margin]
