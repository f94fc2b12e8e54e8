"""Tables, arrays and a figure of what each filter is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchbeast.analysis.ablation import AgentEffects, rank_agreement
from torchbeast.analysis.aggregates import percentiles, resample_means
from torchbeast.analysis.panels import save_figure
from torchbeast.analysis.results import make_directory, write_arrays, write_table

# Palette of Okabe and Ito, and a marker per game for those who see no colours.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = ("o", "s", "^", "D", "v", "P")
DECADES = 4  # Of the colour scale; smaller effects are drawn as the smallest.
MAX_LEVEL_NAMES = 6  # More names of layers are drawn upright.
EFFECT_COLUMNS = ("policy", "policy_low", "policy_high", "value", "value_low", "value_high")
RETURN_COLUMNS = ("return_change", "return_low", "return_high")


def save(effects: Sequence[AgentEffects], directory: Path) -> list[Path]:
    """Writes ``ablation*.csv``, ``ablation.npz`` and ``ablation.png``. Raises UsageError."""
    make_directory(directory)
    with_returns = any(game.returns.size for agent in effects for game in agent.games)
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "ablation": (
            (
                *("agent", "game", "layer", "filter", *EFFECT_COLUMNS),
                *(RETURN_COLUMNS if with_returns else ()),
            ),
            (row for agent in effects for row in _filter_rows(agent)),
        ),
        "ablation_layers": (
            ("agent", "game", "layer", *EFFECT_COLUMNS, "untrained_policy"),
            (row for agent in effects for row in _layer_rows(agent)),
        ),
        "ablation_agreement": (
            ("agent", "game_a", "game_b", "agreement", "untrained"),
            (row for agent in effects for row in _agreement_rows(agent)),
        ),
    }
    paths = []
    for name, (header, rows) in tables.items():
        paths.append(directory / f"{name}.csv")
        write_table(paths[-1], header, rows)
    write_arrays(directory / "ablation.npz", _arrays(effects))
    picture = save_figure(draw(effects), directory / "ablation.png", dpi=85)
    return [*paths, directory / "ablation.npz", picture]


def _filter_rows(agent: AgentEffects) -> Iterable[Sequence[Any]]:
    for game in agent.games:
        columns = []
        for values in (game.policy, game.value):
            columns += [values.mean(axis=1), *percentiles(resample_means(values))]
        if game.returns.size:
            # The games without a filter are other games than the intact ones: resampled apart.
            changes = resample_means(game.returns) - resample_means(game.intact_returns, seed=1)
            mean = game.returns.mean(axis=1) - game.intact_returns.mean()
            columns += [mean, *percentiles(changes)]
        for one, *numbers in zip(agent.filters, *columns, strict=True):
            yield (agent.agent, game.game, one.layer, one.channel, *map(_round, numbers))


def _layer_rows(agent: AgentEffects) -> Iterable[Sequence[Any]]:
    for game in agent.games:
        for layer, chosen in _layers(agent).items():
            numbers: list[Any] = []
            for values in (game.policy, game.value):
                total = values[chosen].sum(axis=0)
                numbers += [total.mean(), *percentiles(resample_means(total))]
            numbers.append(game.untrained[chosen].sum(axis=0).mean())
            yield (agent.agent, game.game, layer, *map(_round, numbers))


def _agreement_rows(agent: AgentEffects) -> Iterable[Sequence[Any]]:
    trained, untrained = rank_agreement(agent), rank_agreement(agent, untrained=True)
    for i, a in enumerate(agent.games):
        for j, b in enumerate(agent.games[: i + 1]):
            yield (agent.agent, a.game, b.game, _round(trained[i, j]), _round(untrained[i, j]))


def _round(number: float) -> str:
    return f"{number:.6g}"


def _layers(agent: AgentEffects) -> dict[str, np.ndarray]:
    """Indices of the filters of each layer."""
    names = [one.layer for one in agent.filters]
    return {
        layer: np.array([i for i, name in enumerate(names) if name == layer])
        for layer in dict.fromkeys(names)
    }


def _arrays(effects: Sequence[AgentEffects]) -> dict[str, Any]:
    """Matrices of means, filters by games, with a name per agent: ``0_policy``, ``1_policy``."""
    arrays: dict[str, Any] = {"agents": np.array([agent.agent for agent in effects])}
    for number, agent in enumerate(effects):
        arrays[f"{number}_games"] = np.array([game.game for game in agent.games])
        arrays[f"{number}_layers"] = np.array([one.layer for one in agent.filters])
        arrays[f"{number}_filters"] = np.array([one.channel for one in agent.filters])
        for name in ("policy", "value", "untrained"):
            columns = [getattr(game, name).mean(axis=1) for game in agent.games]
            arrays[f"{number}_{name}"] = np.stack(columns, axis=1)
        arrays[f"{number}_intact_returns"] = np.stack([g.intact_returns for g in agent.games])
        arrays[f"{number}_returns"] = np.stack([game.returns for game in agent.games], axis=1)
    return arrays


def draw(effects: Sequence[AgentEffects]) -> Any:
    """Draws a column per agent; what has one unit has the same scale for all agents."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    count = max(len(agent.games) for agent in effects)
    with_returns = any(game.returns.size for agent in effects for game in agent.games)
    maps = ["policy", "value", *(["return"] if with_returns else [])]
    upright = max(len(_layers(agent)) for agent in effects) > MAX_LEVEL_NAMES
    names = 0.8 if upright else 0.0
    heights = [max(0.26 * count, 0.8) + 0.9 + names] * len(maps)
    heights += [2.4 + names, 0.36 * count + 1.6]
    figure = pyplot.figure(figsize=(8 * len(effects), sum(heights) + 0.8), layout="constrained")
    grid = figure.subfigures(len(heights), len(effects), height_ratios=heights, squeeze=False)
    for row, what in enumerate(maps):
        _draw_maps([*grid[row]], effects, what)
    _draw_sums([*grid[-2]], effects)
    _draw_agreement([*grid[-1]], effects)
    return figure


def _matrix(agent: AgentEffects, what: str) -> np.ndarray:
    """Means ``[games, F]``, filters of a layer in descending order of their effect on the policy.

    The order is one for all games. An order for each would show structure where there is none.
    """
    size = np.mean([game.policy.mean(axis=1) for game in agent.games], axis=0)
    layers = _layers(agent).values()
    order = np.concatenate([chosen[np.argsort(-size[chosen])] for chosen in layers])
    if what == "return":
        rows = [game.returns.mean(axis=1) - game.intact_returns.mean() for game in agent.games]
    else:
        rows = [getattr(game, what).mean(axis=1) for game in agent.games]
    return np.array(rows)[:, order]


def _draw_maps(figures: list[Any], effects: Sequence[AgentEffects], what: str) -> None:
    """One kind of effect as a picture per agent, games by filters."""
    from matplotlib.colors import LogNorm, Normalize

    matrices = [_matrix(agent, what) for agent in effects]
    units = [_unit(agent, what) for agent in effects]
    colours = "RdBu" if what == "return" else "viridis"
    titles = {
        "policy": "change of the policy without one filter",
        "value": "change of the value without one filter",
        "return": "change of the return without one filter",
    }
    for figure, agent, matrix, unit in zip(figures, effects, matrices, units, strict=True):
        alike = [m for m, its_unit in zip(matrices, units, strict=True) if its_unit == unit]
        largest = max(float(np.abs(m).max()) for m in alike) or 1.0
        floor = -largest if what == "return" else largest * 10**-DECADES  # Zero has no logarithm.
        norm = (Normalize if what == "return" else LogNorm)(floor, largest)
        axis = figure.subplots()
        image = axis.imshow(
            np.maximum(matrix, floor),
            aspect="auto",
            interpolation="nearest",
            cmap=colours,
            norm=norm,
        )
        axis.set_title(f"{agent.agent}: {titles[what]}")
        axis.set_yticks(range(len(agent.games)), [game.game for game in agent.games])
        sizes = [len(chosen) for chosen in _layers(agent).values()]
        ends = np.cumsum(sizes)
        for end in ends[:-1]:
            axis.axvline(end - 0.5, color="white", lw=1.5)
        labels = [f"{name} ({size})" for name, size in zip(_layers(agent), sizes, strict=True)]
        axis.set_xticks(ends - np.array(sizes) / 2 - 0.5, labels, fontsize="small")
        if len(sizes) > MAX_LEVEL_NAMES:
            axis.tick_params(axis="x", rotation=90)
        axis.set_xlabel("filters of each layer, by mean effect on the policy", fontsize="small")
        axis.tick_params(length=0)
        figure.colorbar(image, ax=axis, label=unit, pad=0.01)


def _unit(agent: AgentEffects, what: str) -> str:
    value = "sigma" if agent.use_popart else "returns"
    return {"policy": "KL divergence, nats", "value": value, "return": "points"}[what]


def _draw_sums(figures: list[Any], effects: Sequence[AgentEffects]) -> None:
    """Sums over the filters of each layer, with intervals over frames."""
    axes = [figure.subplots() for figure in figures]
    names = list(dict.fromkeys(game.game for agent in effects for game in agent.games))
    for axis, agent in zip(axes, effects, strict=True):
        layers = _layers(agent)
        for game in agent.games:
            number = names.index(game.game)
            totals = np.array([game.policy[chosen].sum(axis=0) for chosen in layers.values()])
            means = totals.mean(axis=1)
            low, high = percentiles(resample_means(totals))
            shift = (number - (len(names) - 1) / 2) * 0.6 / len(names)
            axis.errorbar(
                np.arange(len(layers)) + shift,
                means,
                np.clip([means - low, high - means], 0, None),
                fmt=MARKERS[number % len(MARKERS)],
                ms=4,
                color=COLOURS[number % len(COLOURS)],
                label=game.game,
            )
        axis.set_xticks(range(len(layers)), layers, fontsize="small")
        if len(layers) > MAX_LEVEL_NAMES:
            axis.tick_params(axis="x", rotation=90)
        axis.set_title(f"{agent.agent}: policy, sum over a layer's filters (95 % over frames)")
        axis.set_xlim(-0.5, len(layers) - 0.5)
        axis.set_ylabel("KL divergence, nats")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    top = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0, top)


def _draw_agreement(figures: list[Any], effects: Sequence[AgentEffects]) -> None:
    """How far games agree about which filters matter, beside an untrained network."""
    for figure, agent in zip(figures, effects, strict=True):
        names = [game.game for game in agent.games]
        if len(names) < 2:
            continue
        axes = figure.subplots(1, 2)
        for axis, untrained in zip(axes, (False, True), strict=True):
            matrix = rank_agreement(agent, untrained=untrained)
            axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r", aspect="auto")
            for (i, j), value in np.ndenumerate(matrix):
                colour = "white" if abs(value) > 0.6 else "black"
                axis.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, size=8)
            axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize="small")
            axis.set_yticks(range(len(names)), names, fontsize="small")
            axis.set_title("untrained network" if untrained else agent.agent, fontsize="medium")
        axes[1].set_yticklabels([])
        figure.suptitle(
            "Do the same filters of a layer matter? Rank correlation of effects on the policy,\n"
            "one game with another; on the diagonal one half of a game's frames with the other",
            size="medium",
        )
