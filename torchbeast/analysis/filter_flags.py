"""The flags of ``python -m torchbeast.analysis.analyze_resnet``."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchbeast.cli.parsing import Parser, natural, positive

COMPARISONS = ("single_multi", "single_multipop", "multi_multipop", "single_single", "time_steps")
CONTROLS = ("same_games", "untrained")
METRICS = ("default", "optimal", "rebasin", "kernels", "optimal_kernels", "cka")


# What each mode reads besides --mode, --load_path, --save_dir and what is accepted as in 2019.
USED = {
    "filter_comp": {
        *("models", "comp_num_models", "comp_between", "comp_seeds", "comp_no_optimal"),
        *("comp_single_single_model", "match_num_models", "metric", "cores"),
        *("cka_game", "cka_frames"),
    },
    "filter_comp_plot": {
        *("plot_match_type", "plot_metric_type", "plot_summary", "plot_heatmaps"),
        *("save_figures", "hide_plots"),
    },
    "filter_vis": {"layer", "filter"},
    "_filter_comp": {"layer", "other"},
}


def find_unused(mode: str, given: set[str]) -> list[str]:
    """Returns the flags that a mode does not read, but another one does.

    Args:
        mode: of :data:`USED`.
        given: destinations of the flags that were given.
    """
    others = set().union(*USED.values()) - USED[mode]
    return [f"--{name}" for name in sorted(given & others)]


def make_parser() -> Parser:
    """Builds the parser of ``python -m torchbeast.analysis.analyze_resnet``."""
    parser = Parser("analysis.analyze_resnet", "Compares and shows the filters of ResNet agents.")
    add = parser.add_argument
    add(
        "--mode",
        choices=list(USED),
        default="filter_comp",
        help="filter_comp: distances between the filters of agents over training. "
        "filter_comp_plot: figures of these distances. filter_vis: the inputs that excite filters "
        "most. _filter_comp: distances between two checkpoints. (default: %(default)s)",
    )
    add(
        "--load_path",
        "--model_load_path",
        type=Path,
        default=Path("models"),
        help="Directory of agents (filter_comp), of filter_comp's results (filter_comp_plot), or a "
        "checkpoint (other modes). (default: %(default)s)",
    )
    add(
        "--save_dir",
        type=Path,
        help="Directory for the results. (default: filter_comp in --load_path; in modes that "
        "look at checkpoints: the mode's name, or filters)",
    )
    add_comparison_flags(parser)
    add_plot_flags(parser)
    add_checkpoint_flags(parser)
    return parser


def add_comparison_flags(parser: argparse.ArgumentParser) -> None:
    """Adds which agents ``filter_comp`` compares, and how."""
    group = parser.add_argument_group("filter_comp")
    add = group.add_argument
    add(
        "--models",
        metavar="NAME=DIRECTORY,...",
        help="Names of the agents and their directories in --load_path. (default: all there)",
    )
    add(
        "--comp_num_models",
        type=positive,
        default=10,
        help="How many checkpoints of each agent are compared. (default: %(default)s)",
    )
    add(
        "--comp_between",
        nargs="*",
        choices=(*COMPARISONS, *CONTROLS),
        default=list(COMPARISONS),
        help="Which pairs of agents are compared. Without a value: the first three kinds. Two are "
        "controls. same_games: agents of one kind that learned the same games. untrained: new "
        f"networks. (default: {' '.join(COMPARISONS)})",
    )
    add(
        "--comp_seeds",
        choices=("all", "same", "other"),
        default="all",
        help="Which pairs of two trained agents are compared. same: those trained with the same "
        "--seed, which begin with the same weights in one version of this program. other: those "
        "that were not. Pairs of time_steps and untrained are always compared. "
        "(default: %(default)s)",
    )
    add(
        "--match_num_models",
        action="store_true",
        help="Compare checkpoints of equal agent steps.",
    )
    add(
        "--comp_no_optimal",
        action="store_true",
        help="Compare filters in their order only, without matching.",
    )
    add(
        "--comp_single_single_model",
        help="In single_single, compare only this agent with each of the others. (default: every "
        "pair)",
    )
    add(
        "--metric",
        nargs="+",
        choices=METRICS,
        default=["default", "optimal", "rebasin"],
        help="How filters are paired. default: in their order. optimal: the best assignment in "
        "each layer. rebasin: one assignment that is carried through the network. kernels, "
        "optimal_kernels: each kernel of a filter separately, as in 2019. cka: no pairs; how alike "
        "the layers' responses to a game are. (default: default optimal rebasin)",
    )
    add(
        "--cka_game",
        "--game",
        help="Game whose frames the layers respond to. (default: the first that both agents know)",
    )
    add(
        "--cka_frames",
        "--frames",
        type=positive,
        default=256,
        help="Number of frames of each game. (default: %(default)s)",
    )
    add("--cores", type=positive, help="Pairs that are compared in parallel. (default: all cores)")


def add_plot_flags(parser: argparse.ArgumentParser) -> None:
    """Adds what ``filter_comp_plot`` draws."""
    group = parser.add_argument_group("filter_comp_plot")
    add = group.add_argument
    add(
        "--plot_match_type",
        choices=METRICS,
        default="optimal",
        help="The --metric that is drawn. (default: %(default)s)",
    )
    add(
        "--plot_metric_type",
        choices=["sum", "mean", "relative"],
        default="relative",
        help="sum: squared differences of a layer. mean: per filter. relative: divided by the "
        "filters' own squares. (default: %(default)s)",
    )
    add(
        "--plot_summary",
        action="store_true",
        help="Draw one figure: the mean over the layers of every pair, a panel for each --metric "
        "of the results.",
    )
    add(
        "--plot_heatmaps",
        action="store_true",
        help="Draw heat maps, with layers as rows, instead of lines.",
    )
    add("--save_figures", action="store_true", help="Write PNG files.")
    add("--hide_plots", action="store_true", help="Open no window.")


def add_checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the modes that look at one or two checkpoints."""
    group = parser.add_argument_group("modes that look at checkpoints")
    add = group.add_argument
    add(
        "--layer",
        "--layer_index",
        default="feat_conv0",
        help="A layer's name or number, 0 to 14. (default: %(default)s)",
    )
    add(
        "--filter",
        "--filter_index",
        type=natural,
        help="Number of one filter. (default: all filters of the layer)",
    )
    add(
        "--pairwise_comp",
        action="store_true",
        help="Accepted as in 2019, without effect: _filter_comp always compares all pairs.",
    )
    add(
        "--other",
        type=Path,
        help="The second checkpoint of _filter_comp. (default: none)",
    )
