"""Pictures on a card: the learning curve, and a frame of each game as the agent plays it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from torchbeast.analysis.panels import make_panels
from torchbeast.analysis.plot_runs import draw_curve
from torchbeast.analysis.runs import RunRecords
from torchbeast.core.types import UsageError
from torchbeast.evaluate.pictures import side_by_side
from torchbeast.evaluate.playing import watch_game
from torchbeast.evaluate.trained import read_trained

COLUMNS = 3
FRAME_STEP = 150
GAP = 4


def draw_learning_curve(run: RunRecords, path: Path) -> bool:
    """Draws the mean return of the last hundred games of training, a panel per game.

    Args:
        run: the records of the agent's training.
        path: the file, a PNG.

    Returns:
        False if no game has ended in training: there is nothing to draw.
    """
    import matplotlib
    from matplotlib.ticker import EngFormatter

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = {game: run.curve(game) for game in run.games}
    curves = {game: curve for game, curve in curves.items() if len(curve.steps)}
    if not curves:
        return False
    figure, panels = make_panels(list(curves), width=2.6, height=1.9, dpi=80)
    for panel, curve in zip(panels, curves.values(), strict=True):
        draw_curve(panel, curve.steps, curve)
        panel.xaxis.set_major_formatter(EngFormatter())
    panels[0].set_ylabel("return")
    figure.supxlabel("agent steps in all games", fontsize="medium")
    # Without a version number, so that equal curves are equal files.
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    return True


def draw_frames(agent: Path, path: Path, seed: int, step: int = FRAME_STEP) -> bool:
    """Draws one frame of each of an agent's games, three in a row, while it plays greedily.

    Args:
        agent: the agent's directory.
        path: the file, a PNG.
        seed: of the games.
        step: the agent step of the frame.

    Returns:
        False if the games draw no pictures or end before that step.
    """
    from PIL import Image

    trained = read_trained(agent / "model.tar", agent.name)
    frames = []
    for game in trained.agent.config.tasks:
        try:
            watched = watch_game(
                trained, game, lambda _: None, seed=seed, actions=(), first_frame=step, num_frames=1
            )
            picture = next(iter(watched))[1]
        except UsageError:
            continue  # The game is over before.
        if isinstance(picture, np.ndarray):
            frames.append(picture)
    if not frames:
        return False
    height, width = (max(frame.shape[i] for frame in frames) for i in (0, 1))
    # Games differ in the number of lines.
    padded = [
        np.pad(f, ((0, height - f.shape[0]), (0, width - f.shape[1]), (0, 0))) for f in frames
    ]
    columns = min(COLUMNS, len(padded))
    blank = np.zeros((height, width, 3), np.uint8)
    padded += [blank] * (-len(padded) % columns)
    rows = [side_by_side(padded[i : i + columns], GAP) for i in range(0, len(padded), columns)]
    divider = np.zeros((GAP, rows[0].shape[1], 3), np.uint8)
    parts = [part for row in rows for part in (row, divider)][:-1]
    Image.fromarray(np.concatenate(parts)).save(path, optimize=True)
    return True
