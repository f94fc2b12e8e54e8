"""What each filter is for: how policy and value change without it, game by game.

A filter is ablated by setting its output channel to zero in the whole plane (Morcos et al. 2018,
arXiv:1803.06959, ablate units likewise). The policy's change is the Kullback-Leibler divergence of
the changed policy from the intact one at the same moments; the value's is its absolute change.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata

from torchbeast.analysis.agents import choose_known_games
from torchbeast.analysis.moments import Moments, play_moments
from torchbeast.analysis.progress import track
from torchbeast.analysis.results import make_directory
from torchbeast.analysis.stages import Heads, StagedEncoder, State, read_heads
from torchbeast.analysis.untrained import make_untrained
from torchbeast.envs.games import short_name
from torchbeast.evaluate.playing import PARALLEL_GAMES, play
from torchbeast.evaluate.trained import Trained, read_agents
from torchbeast.models import Agent
from torchbeast.runtime.threads import StopRequestedError, StopSignals

MOMENTS_AT_ONCE = 64
STEPS_APART = 16  # Moments from all over a game, not from its beginning only.


class AblationConfig(NamedTuple):
    """What ``--mode ablation`` does."""

    agents: tuple[Path, ...]
    """Checkpoints, or directories with one."""
    games: str | None
    """None: those that each agent knows."""
    layers: tuple[str, ...]
    """Empty: all convolutions."""
    num_frames: int
    """Of each game."""
    games_per_filter: int
    """Full games that are played without each filter, and intact."""
    greedy: bool
    seed: int
    directory: Path


class Filter(NamedTuple):
    """One output channel of a convolution."""

    layer: str
    channel: int


class GameEffects(NamedTuple):
    """What an agent's filters do in one game, for F filters and N moments."""

    game: str
    policy: np.ndarray
    """Divergence from the intact policy in nats, ``[F, N]``."""
    value: np.ndarray
    """Absolute change of the value in the agent's unit, ``[F, N]``."""
    untrained: np.ndarray
    """As ``policy``, of an untrained network on the same moments."""
    intact_returns: np.ndarray
    """Of the intact agent's games, ``[G]``; G may be 0."""
    returns: np.ndarray
    """Of games without each filter, ``[F, G]``."""


class AgentEffects(NamedTuple):
    """What an agent's filters do in all its games."""

    agent: str
    filters: tuple[Filter, ...]
    games: tuple[GameEffects, ...]
    use_popart: bool = True
    """Whether changes of values are in sigma, else in returns."""


def list_filters(agent: Agent, layers: Sequence[str] = ()) -> tuple[Filter, ...]:
    """Returns the filters of the named layers, else of all. Raises UsageError."""
    encoder = StagedEncoder(agent)
    encoder.check_layers(layers)
    return tuple(
        Filter(stage.layer, channel)
        for stage in encoder.stages
        if not layers or stage.layer in layers
        for channel in range(stage.convolution.out_channels)
    )


def measure(
    agent: Agent,
    moments: Moments,
    task: int,
    filters: Sequence[Filter],
    after_filter: Callable[[], object] = lambda: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes what each filter changes at each moment.

    The layers before a filter's are computed once for all of its layer's filters.

    Args:
        agent: a ResNet or a shallow CNN.
        moments: N moments of one game.
        task: which of the agent's games that is.
        filters: F filters.
        after_filter: is called after each filter of a part of the moments; what it raises ends the
            work.

    Returns:
        The policy's divergence in nats and the value's absolute change in the agent's unit,
        ``[F, N]`` each.
    """
    parts = [
        _measure_batch(agent, batch, task, filters, after_filter)
        for batch in moments.split(MOMENTS_AT_ONCE)
    ]
    policy, value = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    return policy, value


@torch.inference_mode()
def _measure_batch(
    agent: Agent,
    moments: Moments,
    task: int,
    filters: Sequence[Filter],
    after_filter: Callable[[], object],
) -> tuple[np.ndarray, np.ndarray]:
    encoder = StagedEncoder(agent)
    fields = moments.inputs._asdict()

    def output(state: State, done: int) -> Heads:
        return read_heads(agent, encoder.finish(state, done), fields, moments.state, task)

    state = encoder.start(moments.inputs.frame[0], task)
    intact = output(state, 0)
    policy, value = [], []
    for done, stage in enumerate(encoder.stages, start=1):
        responses = stage.convolution(stage.read(state))
        for one in filters:
            if one.layer == stage.layer:
                ablated = responses.clone()
                ablated[:, one.channel] = 0
                heads = output(stage.write(state, ablated), done)
                policy.append(intact.divergence(heads))
                value.append((heads.value - intact.value).abs())
                after_filter()
        state = stage.write(state, responses)
    return torch.stack(policy).numpy(), torch.stack(value).numpy()


def remove_filter(agent: Agent, one: Filter) -> Agent:
    """Returns a copy of an agent in which a filter's output is always zero."""
    changed = copy.deepcopy(agent)
    stages = {stage.layer: stage for stage in StagedEncoder(changed).stages}
    convolution = stages[one.layer].convolution
    assert convolution.bias is not None
    with torch.no_grad():
        convolution.weight[one.channel] = 0
        convolution.bias[one.channel] = 0
    return changed


def measure_games(
    trained: Trained,
    games: Sequence[str],
    filters: Sequence[Filter],
    config: AblationConfig,
    after_step: Callable[[], object] = lambda: None,
) -> Iterator[GameEffects]:
    """Measures filters of one agent in several games, and yields one game at a time.

    ``after_step`` is called after each step of the work; what it raises ends it.

    Raises UsageError.
    """
    untrained = make_untrained(trained.agent, config.seed)
    for game in track(games, desc=trained.xpid, unit="game"):
        task = trained.find_task(game)
        moments = play_moments(
            trained,
            game,
            config.num_frames,
            seed=config.seed,
            steps_apart=STEPS_APART,
            after_step=after_step,
        )
        yield GameEffects(
            short_name(game),
            *measure(trained.agent, moments, task, filters, after_step),
            measure(untrained, moments, task, filters, after_step)[0],
            *_play_without(trained, game, filters, config, after_step),
        )


def _play_without(
    trained: Trained,
    game: str,
    filters: Sequence[Filter],
    config: AblationConfig,
    after_step: Callable[[], object] = lambda: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns of intact games ``[G]``, and without each filter ``[F, G]``, with the same seeds."""
    count = config.games_per_filter
    if not count:
        return np.zeros(0), np.zeros((len(filters), 0))

    def score(agent: Agent) -> list[float]:
        episodes = play(
            trained._replace(agent=agent),
            game,
            count,
            greedy=config.greedy,
            seed=config.seed,
            after_step=after_step,
        )
        return [episode.episode_return for episode in episodes]

    intact = score(trained.agent)
    without = [
        score(remove_filter(trained.agent, one))
        for one in track(filters, desc=f"{short_name(game)}, full games", unit="filter")
    ]
    return np.array(intact), np.array(without)


def rank_agreement(effects: AgentEffects, *, untrained: bool = False) -> np.ndarray:
    """How far games agree about which filters of a layer matter to the policy.

    Filters are ranked within their layer by their mean effect: layers differ in the size of effects
    whatever was learned. Spearman's correlation of the ranks, over all layers.

    Args:
        effects: of N moments per game. Every second game that was played side by side is one half
            of them, so that the halves share no game.
        untrained: of the untrained network instead.

    Returns:
        ``[K, K]`` for K games. Each entry compares one half of the moments with the other. On the
        diagonal it is how well the ranks of one game can be known from half of the moments.
    """
    halves = []
    for game in effects.games:
        values = game.untrained if untrained else game.policy
        games_played = np.arange(values.shape[1]) % PARALLEL_GAMES
        halves.append(
            [
                rank_in_layers(values[:, games_played % 2 == half].mean(axis=1), effects.filters)
                for half in (0, 1)
            ]
        )
    first, second = (np.array(half) for half in zip(*halves, strict=True))
    norms = np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1)
    with np.errstate(invalid="ignore"):  # No filter does anything: not a number.
        correlation = first @ second.T / np.outer(*norms)
    return (correlation + correlation.T) / 2


def rank_in_layers(values: np.ndarray, filters: Sequence[Filter]) -> np.ndarray:
    """Ranks ``[F]`` of values within each layer, centred, from -0.5 to 0.5."""
    result = np.zeros(len(values))
    layers = np.array([one.layer for one in filters])
    for layer in dict.fromkeys(layers.tolist()):
        chosen = layers == layer
        ranks = rankdata(values[chosen])
        result[chosen] = (ranks - ranks.mean()) / max(len(ranks) - 1, 1)
    return result


def run(config: AblationConfig, signals: StopSignals) -> list[Path]:
    """Measures all agents and writes a table, arrays and a figure. Raises UsageError.

    A signal ends the work; the games that are complete are written.
    """
    from torchbeast.analysis import ablation_report

    # A few moments at a time: a second thread gains little, and on a busy machine it costs.
    torch.set_num_threads(1)
    players = read_agents(*config.agents)
    chosen = [choose_known_games([player], config.games) for player in players]
    # Refuses before anything is played.
    filters = [list_filters(player.agent, config.layers) for player in players]
    make_directory(config.directory)
    found: list[list[GameEffects]] = [[] for _ in players]
    with signals:
        try:
            for player, games, own, effects in zip(players, chosen, filters, found, strict=True):
                for game in measure_games(player, games, own, config, signals.check):
                    effects.append(game)
        except StopRequestedError:
            what = "the games that are complete" if found[0] else "nothing: no game is complete"
            print(f"Saving {what} ({signals.HINT})", file=sys.stderr)
        complete = [
            AgentEffects(player.xpid, own, tuple(effects), player.agent.config.use_popart)
            for player, own, effects in zip(players, filters, found, strict=True)
            if effects
        ]
        return ablation_report.save(complete, config.directory) if complete else []
