"""Where an attention agent's queries look: ``python -m torchbeast.analysis.visualize_aaa``.

Writes, per step, the game under the attention map of each query, side by side, and films them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchbeast.analysis.results import checkpoint_directory, make_directory, remove_earlier
from torchbeast.cli import flags as flags_lib
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser
from torchbeast.core.types import UsageError
from torchbeast.runtime.text import counted

if TYPE_CHECKING:
    import numpy as np

    from torchbeast.analysis.overlays import Grid
    from torchbeast.models.attention import AttentionNet
    from torchbeast.play.agents import Trained


def make_parser() -> Parser:
    """Builds the parser of ``python -m torchbeast.analysis.visualize_aaa``."""
    parser = Parser("analysis.visualize_aaa", "Shows where an attention agent's queries look.")
    flags_lib.add_trained_flags(parser)
    flags_lib.add_watched_game_flags(parser, first_frame=0, num_frames=100)
    parser.add_argument(
        "--save_dir",
        default="attention",
        help="Directory for <xpid>/<env>/<step>.png; an intermediate checkpoint has a directory "
        "model.<id> in <xpid>. (default: %(default)s)",
    )
    return parser


def attention_frames(
    flags: argparse.Namespace, trained: Trained, game: str
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields step, picture and attention maps ``[Q, H, W]`` of the steps asked for."""
    from torchbeast.models.attention import AttentionNet
    from torchbeast.play.game_loop import read_actions, watch_game

    agent = trained.agent
    assert isinstance(agent, AttentionNet)
    watched = watch_game(
        trained,
        game,
        seed=flags.seed,
        actions=read_actions(flags.actions, agent.config.num_actions),
        first_frame=flags.first_frame,
        num_frames=flags.num_frames,
    )
    for step, picture, *_ in watched:
        assert agent.attention is not None
        yield step, picture, agent.attention[0, 0].float().numpy()


def make_grid(agent: AttentionNet) -> Grid:
    """Computes the places of the attention in the observation: the centres of what the vision
    sees.
    """
    from torch import nn

    from torchbeast.analysis.overlays import Grid

    spacing, first = 1, 0.0
    for layer in agent.vision:
        if isinstance(layer, nn.Conv2d):
            assert isinstance(layer.padding, tuple)
            first += spacing * ((layer.kernel_size[0] - 1) / 2 - layer.padding[0])
            spacing *= layer.stride[0]
    _, height, width = agent.config.observation_shape
    return Grid(height, width, spacing, first)


def draw(picture: np.ndarray, maps: np.ndarray, grid: Grid, peak: float) -> np.ndarray:
    """Draws the picture under each query's map, side by side, enlarged, with numbers.

    Args:
        picture: uint8 ``[H, W, 3]``.
        maps: ``[Q, h, w]``, each adds up to 1.
        grid: where the maps' places are.
        peak: the attention that is drawn brightest.
    """
    from torchbeast.analysis.overlays import YELLOW, enlarge, overlay, scale_to
    from torchbeast.play.pictures import caption, magnify, side_by_side

    height, width = picture.shape[:2]
    panels = [caption(magnify(picture), f"brightest: {peak:.2g}")]
    for i, scores in enumerate(maps):
        layers = [(scale_to(enlarge(scores, grid, height, width), peak), YELLOW)]
        text = f"query {i}: most {scores.max():.2f}, {effective_places(scores):.0f} places"
        panels.append(caption(magnify(overlay(picture, layers)), text))
    return side_by_side(panels, gap=8)


def effective_places(scores: np.ndarray) -> float:
    """Computes the exponential of a map's entropy: over how many places the attention is spread."""
    import numpy as np
    from scipy.special import entr

    return float(np.exp(entr(scores / scores.sum()).sum()))


def visualize(flags: argparse.Namespace) -> None:
    """Writes pictures and the film, all under one scale. Raises UsageError."""
    from PIL import Image

    from torchbeast.models.attention import AttentionNet
    from torchbeast.play.agents import check_game, choose_game, load_trained
    from torchbeast.play.config import TrainedAgentConfig
    from torchbeast.play.movie_writer import MovieWriter

    trained = load_trained(TrainedAgentConfig.from_flags(vars(flags), flags.given))
    if not isinstance(trained.agent, AttentionNet):
        raise UsageError(
            f"{trained.xpid} is a {trained.agent.config.agent_type} agent: only aaa has attention"
        )
    grid = make_grid(trained.agent)
    game = choose_game(trained, flags.env)
    root = Path(flags.save_dir).expanduser() / trained.xpid
    directory = checkpoint_directory(root, trained.intermediate_id, game)
    check_game(trained, game)
    make_directory(directory)
    # Opened at once, so that a path that cannot be written ends the program before the game.
    with MovieWriter(flags.movie, 15) if flags.movie else contextlib.nullcontext() as movie:
        frames = list(attention_frames(flags, trained, game))
        peak = max(float(maps.max()) for _, _, maps in frames)
        remove_earlier(directory)
        for step, picture, maps in frames:
            drawn = draw(picture, maps, grid, peak)
            Image.fromarray(drawn).save(directory / f"{step:06d}.png")
            if movie is not None:
                movie.append(drawn)
    movie_name = f"; {flags.movie}" if flags.movie else ""
    print(f"{counted(len(frames), 'frame')} in {directory}{movie_name}")


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = (parser := make_parser()).parse_args(argv)
    flags.given = parser.given
    return run_command("analysis.visualize_aaa", lambda _: visualize(flags))


if __name__ == "__main__":
    sys.exit(main())
