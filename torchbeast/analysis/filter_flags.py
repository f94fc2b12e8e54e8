"""Flags of ``python -m torchbeast.analysis.analyze_resnet``."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchbeast.cli.parsing import Parser, natural, positive

COMPARISONS = ("single_multi", "single_multipop", "multi_multipop", "single_single", "time_steps")
METRICS = ("default", "optimal", "rebasin", "kernels", "optimal_kernels", "cka")
MODES = (
    *("filter_comp", "filter_comp_plot", "filter_vis", "_filter_comp"),
    *("similarity", "ablation", "stitching"),
)


def make_parser() -> argparse.ArgumentParser:
    parser = Parser("analysis.analyze_resnet", "Compares, shows and tests the filters of agents.")
    add = parser.add_argument
    add(
        "--mode",
        choices=MODES,
        default="filter_comp",
        help="filter_comp: distances between agents over training. filter_comp_plot: their "
        "figures. filter_vis: the inputs that excite filters most. _filter_comp: two checkpoints. "
        "similarity: responses of two agents of any network, with controls. ablation: what changes "
        "without each filter. stitching: one agent's first layers in front of another agent.",
    )
    add(
        "--load_path",
        "--model_load_path",
        type=Path,
        default=Path("models"),
        help="Directory of agents, of filter_comp's results, or a checkpoint (default: models).",
    )
    add("--save_dir", type=Path, help="Where results go (default: filter_comp in --load_path).")
    group = parser.add_argument_group("filter_comp")
    add = group.add_argument
    add("--models", help="Agents: name=directory in --load_path,... (default: all there).")
    add("--comp_num_models", type=positive, default=10, help="Checkpoints of each agent.")
    add(
        "--comp_between",
        nargs="*",
        choices=COMPARISONS,
        default=list(COMPARISONS),
        help="Which agents are compared (default: all of these; without a value the first three).",
    )
    add("--match_num_models", action="store_true", help="Compare at equal steps.")
    add("--comp_no_optimal", action="store_true", help="Filters in order only.")
    add("--comp_single_single_model", help="single_single: this agent with each other one only.")
    add(
        "--metric",
        nargs="+",
        choices=METRICS,
        default=["default", "optimal", "rebasin"],
        help="How filters are paired: in order; the best in each layer; carried through the "
        "network. Not by default: kernels, optimal_kernels: each kernel of a filter for itself, "
        "as in 2019. cka: likeness of the layers' responses to a game.",
    )
    add(
        "--cka_game",
        "--game",
        help="Game to respond to (default: the first that both agents know). similarity, ablation, "
        "stitching: one or several (default: all that the agents know).",
    )
    add(
        "--cka_frames",
        "--frames",
        type=positive,
        default=256,
        help="Frames of each game (default: %(default)s).",
    )
    add("--cores", type=positive, help="Pairs at a time.")
    group = parser.add_argument_group("filter_comp_plot")
    add = group.add_argument
    add("--plot_match_type", choices=METRICS, default="optimal")
    add(
        "--plot_metric_type",
        choices=["sum", "mean", "relative"],
        default="relative",
        help="relative: divided by the filters' own squares (default: %(default)s).",
    )
    add("--plot_heatmaps", action="store_true", help="Layers as rows instead of lines.")
    add("--save_figures", action="store_true", help="Write PNG files.")
    add("--hide_plots", action="store_true", help="Open no window.")
    add_checkpoint_flags(parser)
    return parser


def add_checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the modes that look at single checkpoints."""
    group = parser.add_argument_group("one or several checkpoints")
    add = group.add_argument
    add("--layer", "--layer_index", default="feat_conv0", help="A layer's name or number, 0 to 14.")
    add(
        "--filter",
        "--filter_index",
        type=natural,
        help="One filter (default: the whole layer, as a sheet).",
    )
    add(
        "--pairwise_comp",
        action="store_true",
        help="Accepted as in 2019, without effect: _filter_comp always compares all pairs.",
    )
    add("--other", type=Path, help="The second checkpoint (all of these modes but filter_vis).")
    add(
        "--control",
        type=Path,
        nargs="+",
        default=[],
        help="similarity: two checkpoints of the same game from other seeds. stitching: "
        "checkpoints whose first layers are stitched, too.",
    )
    group = parser.add_argument_group("ablation, stitching")
    add = group.add_argument
    add("--layers", help="Convolutions: name,name,... (default: all).")
    add(
        "--games_per_filter",
        type=natural,
        default=0,
        help="ablation: full games without each filter; slow (default: %(default)s).",
    )
    add(
        "--games",
        type=natural,
        default=8,
        help="stitching: full games of each agent; 0: policies only (default: %(default)s).",
    )
    add(
        "--sample",
        dest="greedy",
        action="store_false",
        help="Sample actions in full games instead of taking the likeliest.",
    )
    add("--seed", type=natural, default=0, help="Of frames and games (default: %(default)s).")
