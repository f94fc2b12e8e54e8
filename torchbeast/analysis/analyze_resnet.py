"""Compares the filters of ResNets: ``python -m torchbeast.analysis.analyze_resnet``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torchbeast.analysis.results import make_directory, write_arrays
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser, natural, positive
from torchbeast.core.types import UsageError
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.threads import available_cores

if TYPE_CHECKING:
    from torchbeast.analysis.filter_agents import RunAgent
    from torchbeast.analysis.filter_comp import Measure

COMPARISONS = ("single_multi", "single_multipop", "multi_multipop", "single_single", "time_steps")
CONTROLS = ("same_games", "untrained")
METRICS = ("default", "optimal", "rebasin", "kernels", "optimal_kernels", "cka")


# What each mode reads besides --mode, --load_path, --save_dir and what is accepted as in 2019.
USED = {
    "filter_comp": {
        *("models", "comp_num_models", "comp_between", "comp_no_optimal"),
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
        "look at checkpoints: filters)",
    )
    add_comparison_flags(parser)
    add_plot_flags(parser)
    add_checkpoint_flags(parser)
    return parser


def add_comparison_flags(parser: argparse.ArgumentParser) -> None:
    """Adds which agents ``filter_comp`` compares."""
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
        help="Which pairs of agents are compared. Without a value: the first three kinds. Three "
        "are controls. time_steps: an agent and itself, one checkpoint later. same_games: agents "
        "of one kind that learned the same games. untrained: new networks. "
        f"(default: {' '.join(COMPARISONS)})",
    )
    add(
        "--match_num_models",
        action="store_true",
        help="Compare checkpoints of the nearest agent steps.",
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
    add("--cores", type=positive, help="Pairs that are compared in parallel. (default: all cores)")
    add_metric_flags(group)


def add_metric_flags(group: argparse._ArgumentGroup) -> None:
    """Adds how ``filter_comp`` compares two networks."""
    add = group.add_argument
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
        help="Game whose frames the layers respond to. (default: the first agent's first)",
    )
    add(
        "--cka_frames",
        type=positive,
        default=256,
        help="Number of frames. (default: %(default)s)",
    )


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
        help="Draw one figure: a panel for each --metric of the results, in which each pair of "
        "agents is a point, the mean over the layers at the end of training.",
    )
    add(
        "--plot_heatmaps",
        action="store_true",
        help="Draw heat maps, with layers as rows, instead of lines.",
    )
    add("--save_figures", action="store_true", help="Write PNG files, also where a window opens.")
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


def results_directory(flags: argparse.Namespace) -> Path:
    """Returns the directory of a mode's results, by default as ``--help`` says.

    ``filter_comp_plot`` reads there what ``filter_comp`` wrote.
    """
    if flags.save_dir is not None:
        return flags.save_dir.expanduser()
    if flags.mode in ("filter_vis", "_filter_comp"):
        return Path("filters")
    load_path = flags.load_path.expanduser()
    return load_path if (load_path / "filter_comp.csv").exists() else load_path / "filter_comp"


def run_filter_comp(flags: argparse.Namespace) -> None:
    """Runs ``filter_comp``: measures distances between agents over training. Raises UsageError."""
    from torchbeast.analysis import filter_agents, filter_comp

    agents = filter_agents.find_agents(flags.load_path.expanduser(), flags.models)
    for agent in agents:
        print(f"{agent.name}: {agent.kind}, {len(agent.checkpoints)} checkpoints")
    comparisons = flags.comp_between or COMPARISONS[:3]
    with tempfile.TemporaryDirectory(prefix="untrained-") as temporary:
        if "untrained" in comparisons:
            agents += filter_agents.save_untrained(agents[0], Path(temporary))
        pairs = filter_comp.make_pairs(
            agents,
            comparisons,
            flags.comp_num_models,
            match_steps=flags.match_num_models,
            only=flags.comp_single_single_model,
        )
        directory = results_directory(flags)
        make_directory(directory)  # Before the work.
        measures = choose_measures(flags, agents)
        rows = filter_comp.compare_all(pairs, measures, flags.cores or available_cores())
    print(filter_comp.save(rows, directory))


def choose_measures(flags: argparse.Namespace, agents: list[RunAgent]) -> dict[str, Measure]:
    """Chooses the measures that ``--metric`` and ``--comp_no_optimal`` name. Raises UsageError."""
    from torchbeast.analysis import filter_comp

    metrics = list(flags.metric)
    if flags.comp_no_optimal:
        metrics = [name for name in metrics if name not in filter_comp.MATCHED]
    if not metrics:
        raise UsageError(f"--comp_no_optimal leaves nothing of --metric {' '.join(flags.metric)}")
    measures = {name: filter_comp.MEASURES[name] for name in metrics if name != "cka"}
    if "cka" in metrics:
        from torchbeast.analysis.cka import Responses
        from torchbeast.envs import parse_games

        if flags.cka_frames < 4:
            raise UsageError("--cka_frames must be at least 4")
        games = parse_games(flags.cka_game) if flags.cka_game else (None,)
        if len(games) > 1:
            raise UsageError("--cka_game takes one game")
        responses = Responses(agents, flags.cka_frames, games[0])
        measures["cka"] = filter_comp.Measure(responses.compare, responses.game)
    return measures


def run_filter_comp_plot(flags: argparse.Namespace) -> None:
    """Runs ``filter_comp_plot``: draws what ``filter_comp`` measured. Raises UsageError."""
    from matplotlib import pyplot

    from torchbeast.analysis import filter_comp, filter_plots
    from torchbeast.analysis.panels import save_figure
    from torchbeast.play.films import has_display

    # matplotlib takes Agg where no window can be opened after all.
    is_shown = not flags.hide_plots and has_display() and pyplot.get_backend().lower() != "agg"
    directory = results_directory(flags)
    rows = filter_comp.load(directory)
    match, metric = flags.plot_match_type, flags.plot_metric_type
    if flags.plot_summary:
        figures = {"summary": filter_plots.summarize(rows, metric, shown=is_shown)}
        suffix = metric
    else:
        figures = filter_plots.draw(
            rows, match, metric, heatmaps=flags.plot_heatmaps, shown=is_shown
        )
        suffix = f"{match}_{metric}" + ("_heatmap" if flags.plot_heatmaps else "")
        if not figures:
            raise UsageError(
                f"The results have no {match}: run --mode filter_comp --metric {match} first"
            )
    if flags.save_figures or not is_shown:
        make_directory(directory)
        for name, figure in figures.items():
            print(save_figure(figure, directory / f"{name}_{suffix}.png"))
    if is_shown:
        pyplot.show()


def run_filter_vis(flags: argparse.Namespace) -> None:
    """Runs ``filter_vis``: draws the inputs that excite filters most. Raises UsageError."""
    from PIL import Image

    from torchbeast.analysis.filter_pictures import excite, sheet
    from torchbeast.analysis.filters import find_layer
    from torchbeast.envs.preprocessing import FRAME_FORMATS
    from torchbeast.models.resnet import ResNet
    from torchbeast.play.agents import read_agent
    from torchbeast.play.pictures import magnify

    trained = read_agent(flags.load_path)
    agent = trained.agent
    if not isinstance(agent, ResNet):
        raise UsageError(f"{flags.load_path} is no ResNet")
    layer = find_layer_name(flags.layer)
    count = find_layer(agent, layer).out_channels
    if flags.filter is not None and flags.filter >= count:
        raise UsageError(f"--filter: {layer} has filters 0 to {count - 1}")
    chosen = list(range(count)) if flags.filter is None else [flags.filter]
    directory = results_directory(flags)
    make_directory(directory)
    pictures = excite(agent, layer, chosen)
    name = layer if flags.filter is None else f"{layer}_{flags.filter}"
    channels = 3 if FRAME_FORMATS[trained.observation.frame_format].colour else 1
    Image.fromarray(magnify(sheet(pictures, channels)).squeeze()).save(directory / f"{name}.png")
    print(directory / f"{name}.png")


def run_pairwise(flags: argparse.Namespace) -> None:
    """Runs ``_filter_comp``: the pairwise distances of two checkpoints' filters in one layer."""
    from torchbeast.analysis import filters
    from torchbeast.records import checkpoint
    from torchbeast.records.run_files import checkpoint_at

    if flags.other is None:
        raise UsageError("--mode _filter_comp needs --other: the second checkpoint")
    layer = find_layer_name(flags.layer)
    states = [checkpoint.load(checkpoint_at(path)) for path in (flags.load_path, flags.other)]
    try:
        a, b = (filters.read_weights(state["model_state_dict"])[layer] for state in states)
    except KeyError as error:
        raise UsageError(f"Both checkpoints must be of ResNets: no {error}") from error
    if a.shape != b.shape:  # The agents see frames of other shapes.
        raise UsageError(
            f"The filters of {layer} cannot be compared: {list(a.shape)} and {list(b.shape)}; "
            "choose another --layer"
        )
    directory = results_directory(flags)
    make_directory(directory)
    path = directory / f"pairwise_{layer}.npz"
    write_arrays(path, {"distances": filters.pairwise(a, b)})
    straight, best = filters.in_order(a, b), filters.optimal(a, b)
    print(f"{layer}: in order {straight.sum:.4g}, best matching {best.sum:.4g}; {path}")


def find_layer_name(text: str) -> str:
    """Finds the name of the layer that ``--layer`` gives by name or number. Raises UsageError."""
    from torchbeast.analysis.filters import LAYER_NAMES

    if text.isdecimal() and int(text) < len(LAYER_NAMES):
        return LAYER_NAMES[int(text)]
    if text not in LAYER_NAMES:
        raise UsageError(f"--layer: choose one of {', '.join(LAYER_NAMES)}, or 0 to 14")
    return text


MODES = {
    "filter_comp": run_filter_comp,
    "filter_comp_plot": run_filter_comp_plot,
    "filter_vis": run_filter_vis,
    "_filter_comp": run_pairwise,
}


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    parser = make_parser()
    flags = parser.parse_args(argv)

    def work(_: StopSignals) -> None:
        used = USED[flags.mode]
        parser.warn_of_unused(set().union(*USED.values()) - used, f"in --mode {flags.mode}")
        if "cka" not in flags.metric:
            parser.warn_of_unused(used & {"cka_game", "cka_frames"}, "without --metric cka")
        if flags.plot_summary:
            parser.warn_of_unused(
                used & {"plot_match_type", "plot_heatmaps"}, "with --plot_summary"
            )
        MODES[flags.mode](flags)

    return run_command("analysis.analyze_resnet", work)


if __name__ == "__main__":
    sys.exit(main())
