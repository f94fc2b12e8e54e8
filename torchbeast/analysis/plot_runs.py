"""Learning curves: ``python -m torchbeast.analysis.plot_runs SAVEDIR``.

Draws, per game, the mean full-game return of each run against steps and against hours, with its
standard deviation over the last hundred games as a band, and PopArt's mu with sigma as a band.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from torchbeast.analysis.panels import make_panels
from torchbeast.analysis.runs import Curve, RunRecords, find_runs, read_reference
from torchbeast.cli.parsing import Parser
from torchbeast.core.types import UsageError


def make_parser() -> argparse.ArgumentParser:
    parser = Parser("analysis.plot_runs", "Draws the learning curves of runs as PNG.")
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="DIR", help="A run, or a directory of runs.")
    add("--output", type=Path, help="Directory for the pictures (default: the first DIR).")
    add("--reference", type=Path, help="CSV with env, agent_steps, return_mean to lay under.")
    add("--games", help="Only these, separated by commas.")
    return parser


def draw_curve(axes: Any, x: Any, curve: Curve, **style: Any) -> None:
    (line,) = axes.plot(x, curve.mean, label=curve.name, **style)
    axes.fill_between(
        x, curve.mean - curve.std, curve.mean + curve.std, color=line.get_color(), alpha=0.15, lw=0
    )


def save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    handles: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for columns in (3, 2, 1):  # As many as the names leave room for.
        legend = figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def plot_returns(
    runs: list[RunRecords], games: list[str], reference: dict[str, Curve], unit: str
) -> Any:
    """``unit``: steps or hours."""
    figure, panels = make_panels(games, f"Mean return of the last 100 full games, against {unit}")
    for panel, game in zip(panels, games, strict=True):
        end = 0.0
        for curve in (run.curve(game) for run in runs if game in run.games):
            x = curve.steps if unit == "steps" else curve.hours
            if x is not None and len(x):
                draw_curve(panel, x, curve)
                end = max(end, float(x[-1]))
        if unit == "steps" and game in reference:
            draw_curve(panel, reference[game].steps, reference[game], color="gray", zorder=1)
            # A reference may be far longer than the runs.
            panel.set_xlim(0, max(1.1 * end, float(reference[game].steps[0])))
        panel.set_xlabel(f"agent {unit}" if unit == "steps" else unit)
    return figure


def plot_moments(runs: list[RunRecords], games: list[str]) -> Any:
    figure, panels = make_panels(games, "PopArt: mu and mu +- sigma of the value targets")
    for panel, game in zip(panels, games, strict=True):
        for moments in (run.moments(game) for run in runs if game in run.games):
            if moments is not None:
                curve = Curve(moments.name, moments.steps, None, moments.mu, moments.sigma)
                draw_curve(panel, moments.steps, curve)
        panel.set_xlabel("agent steps")
    return figure


def plot_gradients(run: RunRecords) -> Any:
    """Norm of each weight's gradient against steps; None if they were not tracked."""
    from matplotlib import pyplot

    tracked = run.gradient_norms()
    if tracked is None:
        return None
    steps, norms = tracked
    names = [name for name in norms if name.endswith("weight")]
    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    colours = pyplot.get_cmap("viridis")
    for i, name in enumerate(names):
        axes.plot(steps, norms[name], label=name, color=colours(i / max(1, len(names) - 1)))
    axes.set(title=f"Norm of the gradient by layer: {run.name}", xlabel="agent steps", yscale="log")
    axes.grid(alpha=0.3)
    return figure


def plot(flags: argparse.Namespace) -> list[Path]:
    """Writes the pictures and returns their paths. Raises UsageError."""
    import matplotlib

    matplotlib.use("Agg")
    runs = find_runs([path.expanduser() for path in flags.runs])
    reference = read_reference(flags.reference) if flags.reference else {}
    games = list(dict.fromkeys(game for run in runs for game in run.games))
    if flags.games:
        chosen = flags.games.split(",")
        missing = [game for game in chosen if game not in games]
        if missing:
            raise UsageError(f"No run has {', '.join(missing)}; there are {', '.join(games)}")
        games = chosen
    output = (flags.output or flags.runs[0]).expanduser()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}") from error
    written = [
        save(plot_returns(runs, games, reference, unit), output / f"returns_by_{unit}.png")
        for unit in ("steps", "hours")
    ]
    with_popart = [game for game in games if any(run.moments(game) for run in runs)]
    if with_popart:
        written.append(save(plot_moments(runs, with_popart), output / "popart.png"))
    for run in runs:
        figure = plot_gradients(run)
        if figure is not None:
            written.append(save(figure, output / f"gradients_{run.name}.png"))
    return written


def main(argv: list[str] | None = None) -> int:
    flags = make_parser().parse_args(argv)
    try:
        for path in plot(flags):
            print(path)
    except UsageError as error:
        print(f"plot_runs: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
