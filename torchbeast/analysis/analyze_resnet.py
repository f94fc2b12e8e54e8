"""What an agent's filters became: ``python -m torchbeast.analysis.analyze_resnet``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torchbeast.analysis.filter_flags import COMPARISONS, find_unused, make_parser
from torchbeast.analysis.results import make_directory, write_arrays
from torchbeast.cli.command import run_command
from torchbeast.core.types import UsageError
from torchbeast.runtime.threads import StopSignals, available_cores

if TYPE_CHECKING:
    from torchbeast.analysis import comparison
    from torchbeast.analysis.agents import RunAgent


def results_directory(flags: argparse.Namespace) -> Path:
    """Returns where ``filter_comp`` writes its results and ``filter_comp_plot`` finds them."""
    load_path: Path = flags.load_path.expanduser()
    if flags.save_dir is None and (load_path / "filter_comp.csv").exists():
        return load_path
    save_dir: Path = flags.save_dir or load_path / "filter_comp"
    return save_dir.expanduser()


def filter_comp(flags: argparse.Namespace, _signals: StopSignals) -> None:
    """Runs ``filter_comp``: measures distances between agents over training. Raises UsageError."""
    from torchbeast.analysis import comparison
    from torchbeast.analysis.agents import find_agents
    from torchbeast.analysis.untrained import save_untrained

    agents = find_agents(flags.load_path.expanduser(), flags.models)
    for agent in agents:
        print(f"{agent.name}: {agent.kind}, {len(agent.checkpoints)} checkpoints")
    comparisons = flags.comp_between or COMPARISONS[:3]
    with tempfile.TemporaryDirectory(prefix="untrained-") as temporary:
        if "untrained" in comparisons:
            agents += save_untrained(agents[0], Path(temporary))
        pairs = comparison.make_pairs(
            agents,
            comparisons,
            flags.comp_num_models,
            match_steps=flags.match_num_models,
            only=flags.comp_single_single_model,
            seeds=flags.comp_seeds,
        )
        measures = choose_measures(flags, agents)
        directory = results_directory(flags)
        make_directory(directory)  # Before the work.
        rows = comparison.compare_all(pairs, measures, flags.cores or available_cores())
    for path in comparison.save(rows, directory):
        print(path)


def choose_measures(
    flags: argparse.Namespace, agents: list[RunAgent]
) -> dict[str, comparison.Measure]:
    """Chooses the measures that ``--metric`` and ``--comp_no_optimal`` name. Raises UsageError."""
    from torchbeast.analysis import comparison

    metrics = dict.fromkeys(flags.metric)
    if flags.comp_no_optimal:
        metrics = {name: None for name in metrics if name not in comparison.MATCHED}
    if not metrics:
        raise UsageError(f"--comp_no_optimal leaves nothing of --metric {' '.join(flags.metric)}")
    measures = {name: comparison.MEASURES[name] for name in metrics if name != "cka"}
    if "cka" in metrics:
        from torchbeast.analysis.activations import Responses
        from torchbeast.envs import parse_games

        if flags.cka_frames < 2:
            raise UsageError("--cka_frames must be at least 2")
        games = parse_games(flags.cka_game) if flags.cka_game else (None,)
        if len(games) > 1:
            raise UsageError("--cka_game takes one game")
        measures["cka"] = Responses(agents, flags.cka_frames, games[0])
    return measures


def filter_comp_plot(flags: argparse.Namespace, _signals: StopSignals) -> None:
    """Runs ``filter_comp_plot``: draws what ``filter_comp`` measured. Raises UsageError."""
    import matplotlib

    if flags.hide_plots or not _has_display():
        matplotlib.use("Agg")
    from matplotlib import pyplot

    from torchbeast.analysis import comparison, filter_plots

    directory = results_directory(flags)
    rows = comparison.load(directory)
    match, metric = flags.plot_match_type, flags.plot_metric_type
    if flags.plot_summary:
        figures = {"summary": filter_plots.summarize(rows, metric)} if rows else {}
        suffix = metric
    else:
        figures = filter_plots.draw(rows, match, metric, heatmaps=flags.plot_heatmaps)
        suffix = f"{match}_{metric}" + ("_heatmap" if flags.plot_heatmaps else "")
    if not figures:
        raise UsageError(
            f"The results have no {match}: run --mode filter_comp --metric {match} first"
        )
    if flags.save_figures or flags.hide_plots or not _has_display():
        for path in filter_plots.save(figures, directory, suffix):
            print(path)
    if not flags.hide_plots and _has_display():
        pyplot.show()
    pyplot.close("all")


def filter_vis(flags: argparse.Namespace, _signals: StopSignals) -> None:
    """Runs ``filter_vis``: draws the inputs that excite filters most. Raises UsageError."""
    from PIL import Image

    from torchbeast.analysis import excitation
    from torchbeast.analysis.filters import LAYER_NAMES
    from torchbeast.evaluate.pictures import magnify
    from torchbeast.models import from_checkpoint
    from torchbeast.models.resnet import ResNet

    agent = from_checkpoint(flags.load_path)
    if not isinstance(agent, ResNet):
        raise UsageError(f"{flags.load_path} is no ResNet")
    layer = find_layer_name(flags.layer)
    count = excitation.find_layer(agent, layer).out_channels
    if flags.filter is not None and flags.filter >= count:
        raise UsageError(f"--filter: {layer} has filters 0 to {count - 1}")
    chosen = list(range(count)) if flags.filter is None else [flags.filter]
    directory = (flags.save_dir or Path("filters")).expanduser()
    make_directory(directory)
    pictures = excitation.excite(agent, layer, chosen)
    name = layer if flags.filter is None else f"{layer}_{flags.filter}"
    Image.fromarray(magnify(excitation.sheet(pictures))).save(directory / f"{name}.png")
    print(directory / f"{name}.png")
    if layer == LAYER_NAMES[0]:  # Its inputs are pixels: the weights can be looked at.
        weights = excitation.find_layer(agent, layer).weight.detach().numpy()[chosen]
        path = directory / f"{name}_weights.png"
        Image.fromarray(excitation.draw_weights(weights)).save(path)
        print(path)


def compare_two(flags: argparse.Namespace, _signals: StopSignals) -> None:
    """Runs ``_filter_comp``: the pairwise distances of two checkpoints' filters in one layer."""
    from torchbeast.analysis import filters
    from torchbeast.records import checkpoint

    if flags.other is None:
        raise UsageError("--mode _filter_comp needs --other: the second checkpoint")
    layer = find_layer_name(flags.layer)
    states = [checkpoint.load(p.expanduser()) for p in (flags.load_path, flags.other)]
    try:
        a, b = (filters.read_weights(state["model_state_dict"])[layer] for state in states)
    except KeyError as error:
        raise UsageError(f"Both checkpoints must be of ResNets: no {error}") from error
    if a.shape != b.shape:  # Of agents that see other frames.
        raise UsageError(
            f"The filters of {layer} cannot be compared: {list(a.shape)} and {list(b.shape)}; "
            "choose another --layer"
        )
    directory = (flags.save_dir or Path("filters")).expanduser()
    make_directory(directory)
    path = directory / f"pairwise_{layer}.npz"
    write_arrays(path, {"distances": filters.pairwise(a, b)})
    straight, best = filters.in_order(a, b), filters.optimal(a, b)
    print(f"{layer}: in order {straight.sum:.4g}, best matching {best.sum:.4g}; {path}")


def compare_responses(flags: argparse.Namespace, _signals: StopSignals) -> None:
    """Runs ``similarity``: debiased CKA of two agents beside its controls, on one or several
    games.
    """
    from torchbeast.analysis import similarity
    from torchbeast.analysis.agents import check_alike, choose_known_games
    from torchbeast.evaluate.trained import read_agents

    if flags.other is None:
        raise UsageError("--mode similarity needs --other: the second agent")
    if flags.cka_frames < 8:
        raise UsageError("--cka_frames must be at least 8 with --mode similarity")
    controls = flags.control or []
    if len(controls) not in (0, 2):
        raise UsageError("--mode similarity takes two checkpoints for --control")
    # Named in pairs: a control may be one of the two agents.
    a, b, *control = players = [
        *read_agents(flags.load_path, flags.other),
        *read_agents(*controls),
    ]
    check_alike(players, "compared")
    games = choose_known_games(players, flags.cka_game, "--cka_game")
    directory = (flags.save_dir or Path("similarity")).expanduser()
    make_directory(directory)  # Before the games are played.
    rows = [
        row
        for game in games
        for row in similarity.compare_on_game(
            a, b, game, flags.cka_frames, control, seed=flags.seed
        )
    ]
    for path in similarity.save(rows, directory, f"{a.xpid} and {b.xpid}"):
        print(path)


def ablate(flags: argparse.Namespace, signals: StopSignals) -> None:
    """``ablation``: what changes without each filter of one or two agents."""
    from torchbeast.analysis import ablation

    config = ablation.AblationConfig(
        agents=(flags.load_path, *([flags.other] if flags.other else [])),
        games=flags.cka_game,
        layers=split_names(flags.layers),
        num_frames=flags.cka_frames,
        games_per_filter=flags.games_per_filter,
        greedy=not flags.sample,
        seed=flags.seed,
        directory=(flags.save_dir or Path("ablation")).expanduser(),
    )
    for path in ablation.run(config, signals):
        print(path)


def stitch(flags: argparse.Namespace, signals: StopSignals) -> None:
    """``stitching``: the first layers of one agent in front of another agent's other layers."""
    from torchbeast.analysis import stitching

    if flags.other is None:
        raise UsageError("--mode stitching needs --other: the agent with the other layers")
    config = stitching.StitchingConfig(
        front=flags.load_path,
        back=flags.other,
        controls=tuple(flags.control or ()),
        games=flags.cka_game,
        layers=split_names(flags.layers),
        num_frames=flags.cka_frames,
        num_games=flags.games,
        greedy=not flags.sample,
        seed=flags.seed,
        directory=(flags.save_dir or Path("stitching")).expanduser(),
    )
    for path in stitching.run(config, signals):
        print(path)


def split_names(text: str | None) -> tuple[str, ...]:
    """The names in a list with commas; none for None."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def find_layer_name(text: str) -> str:
    """Finds the name of the layer that ``--layer`` gives by name or number. Raises UsageError."""
    from torchbeast.analysis.filters import LAYER_NAMES

    if text.isdecimal() and int(text) < len(LAYER_NAMES):
        return LAYER_NAMES[int(text)]
    if text not in LAYER_NAMES:
        raise UsageError(f"--layer: choose one of {', '.join(LAYER_NAMES)}, or 0 to 14")
    return text


def _has_display() -> bool:
    from torchbeast.evaluate.watching import has_display

    return has_display()


MODES = {
    "filter_comp": filter_comp,
    "filter_comp_plot": filter_comp_plot,
    "filter_vis": filter_vis,
    "_filter_comp": compare_two,
    "similarity": compare_responses,
    "ablation": ablate,
    "stitching": stitch,
}


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    unused = find_unused(flags.mode, parser.given(argv))
    if unused:
        verb = "has" if len(unused) == 1 else "have"
        names = ", ".join(unused)
        print(f"analyze_resnet: {names} {verb} no effect in --mode {flags.mode}", file=sys.stderr)
    return run_command("analyze_resnet", lambda signals: MODES[flags.mode](flags, signals))


if __name__ == "__main__":
    sys.exit(main())
