"""Does one agent's first layers hold what another agent's other layers need?

Model stitching (Lenc and Vedaldi 2015, arXiv:1411.5908; Bansal et al. 2021, arXiv:2106.07682): the
first ``n`` convolutions of one agent, the front, then a linear map of channels, then the rest of
another agent, the back.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from torchbeast.analysis.agents import check_alike, choose_known_games
from torchbeast.analysis.aggregates import percentiles, resample_means
from torchbeast.analysis.moments import Moments, play_moments
from torchbeast.analysis.progress import track
from torchbeast.analysis.results import make_directory
from torchbeast.analysis.stages import Heads, StagedEncoder, read_heads
from torchbeast.analysis.stitched_agent import MOMENTS_AT_ONCE, Front, StitchedAgent, fit_maps
from torchbeast.analysis.untrained import make_untrained
from torchbeast.envs.games import short_name
from torchbeast.evaluate.playing import play
from torchbeast.evaluate.trained import Trained, read_agents
from torchbeast.models import Agent
from torchbeast.runtime.threads import StopRequestedError, StopSignals

STEPS_APART = 16  # Moments from all over a game, not from its beginning only.
HELD_OUT_SEED = 1000  # Is added to the seed: moments of other games than those of the fit.
UNTRAINED = 3  # Networks; full games are played with the first one.


class StitchingConfig(NamedTuple):
    """What ``--mode stitching`` does."""

    front: Path
    """A checkpoint, or a directory with one."""
    back: Path
    controls: tuple[Path, ...]
    """Other fronts."""
    games: str | None
    """None: those that all agents know."""
    layers: tuple[str, ...]
    """Behind which the agents are stitched; empty: behind every convolution."""
    num_frames: int
    """Of each game, for the fit; as many others for the comparison of policies."""
    num_games: int
    """Full games of each agent; may be 0."""
    greedy: bool
    seed: int
    directory: Path


@torch.inference_mode()
def read_policy(agent: Agent, moments: Moments, task: int) -> Heads:
    """Policies and values of any agent at all moments."""
    parts = []
    for batch in moments.split(MOMENTS_AT_ONCE):
        fields = batch.inputs._asdict()
        tasks = torch.full((len(batch),), task)
        features = agent.encode_frames(batch.inputs.frame[0], tasks)
        parts.append(read_heads(agent, features, fields, batch.state, task))
    return Heads(*(torch.cat(part) for part in zip(*parts, strict=True)))


class Row(NamedTuple):
    """One agent in one game. Scores are NaN where no games were played."""

    game: str
    front: str
    kind: str
    """``front``, ``untrained`` or ``control``; ``intact``; ``blind``: one policy for all frames."""
    layers: int
    """How many convolutions are the front's."""
    layer: str
    """The last of them."""
    policy: float = math.nan
    """Mean divergence of the policy from the back's, in nats."""
    policy_low: float = math.nan
    policy_high: float = math.nan
    games: int = 0
    score: float = math.nan
    score_low: float = math.nan
    score_high: float = math.nan


class Bench:
    """One game in which stitched agents are compared with the intact ones."""

    def __init__(
        self,
        back: Trained,
        game: str,
        config: StitchingConfig,
        after_step: Callable[[], object] = lambda: None,
    ) -> None:
        self._back, self._game, self._config = back, game, config
        self._after_step = after_step
        self.task = back.find_task(game)
        self.fit_moments, self._held_out = (
            play_moments(
                back,
                game,
                config.num_frames,
                seed=seed,
                steps_apart=STEPS_APART,
                after_step=after_step,
            )
            for seed in (config.seed, config.seed + HELD_OUT_SEED)
        )
        self._expected = read_policy(back.agent, self._held_out, self.task)

    def judge(self, agent: Agent, row: Row, *, with_games: bool = True) -> Row:
        """Compares the policy of a back or a stitched agent with the back's, and plays games."""
        row = self._compare(read_policy(agent, self._held_out, self.task), row)
        return self.score(self._back._replace(agent=agent), row) if with_games else row

    def judge_blind(self, row: Row) -> Row:
        """Compares the back's mean policy: what an agent reaches that sees nothing."""
        mean = self._expected.log_policy.exp().mean(dim=0).log()
        blind = self._expected._replace(log_policy=mean.expand_as(self._expected.log_policy))
        return self._compare(blind, row)

    def _compare(self, policy: Heads, row: Row) -> Row:
        divergence = self._expected.divergence(policy).numpy()
        low, high = percentiles(resample_means(divergence))
        return row._replace(
            policy=float(divergence.mean()), policy_low=float(low), policy_high=float(high)
        )

    def score(self, trained: Trained, row: Row) -> Row:
        """Adds the scores of full games; all agents play games with the same seeds."""
        config = self._config
        if not config.num_games:
            return row
        episodes = play(
            trained,
            self._game,
            config.num_games,
            greedy=config.greedy,
            seed=config.seed,
            after_step=self._after_step,
        )
        returns = np.array([episode.episode_return for episode in episodes])
        low, high = percentiles(resample_means(returns))
        return row._replace(
            games=len(returns),
            score=float(returns.mean()),
            score_low=float(low),
            score_high=float(high),
        )


def stitch_in_game(
    front: Trained,
    back: Trained,
    controls: Sequence[Trained],
    game: str,
    config: StitchingConfig,
    after_step: Callable[[], object] = lambda: None,
) -> Iterator[Row]:
    """Stitches behind every chosen layer and compares with the intact agents and controls.

    ``after_step`` is called after each step of the work; what it raises ends it.
    """
    bench = Bench(back, game, config, after_step)
    fronts = [("front", Front(front.xpid, front.agent, front.find_task(game)), True)]
    for number in range(UNTRAINED):
        agent = make_untrained(front.agent, config.seed + number)
        one = Front(f"untrained {number + 1}", agent, front.find_task(game))
        fronts.append(("untrained", one, number == 0))
    for control in controls:
        one = Front(control.xpid, control.agent, control.find_task(game))
        fronts.append(("control", one, True))
    name = short_name(game)
    yield bench.judge(back.agent, Row(name, back.xpid, "intact", 0, ""))
    yield bench.score(front, Row(name, front.xpid, "intact", 0, ""))
    yield bench.judge_blind(Row(name, "one policy for all frames", "blind", 0, ""))
    layers = StagedEncoder(back.agent).layers
    chosen = [n for n, layer in enumerate(layers, 1) if layer in (config.layers or layers)]
    with track(total=len(fronts) * len(chosen), desc=name, unit="agent") as progress:
        for kind, one, with_games in fronts:
            maps = fit_maps(one, back.agent, bench.task, bench.fit_moments, after_step)
            for done in chosen:
                agent = StitchedAgent(one, back.agent, done, maps[done - 1]).eval()
                row = Row(name, one.name, kind, done, layers[done - 1])
                yield bench.judge(agent, row, with_games=with_games)
                progress.update()
                after_step()


def choose_complete(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of the games in which an agent was stitched."""
    games = {row.game for row in rows if row.layers}
    return [row for row in rows if row.game in games]


def check_agents(players: Sequence[Trained], layers: Sequence[str]) -> None:
    """Raises UsageError unless the agents can be stitched behind these layers."""
    check_alike(players, "stitched")
    StagedEncoder(players[0].agent).check_layers(layers)


def run(config: StitchingConfig, signals: StopSignals) -> list[Path]:
    """Stitches agents in all games and writes a table and a figure. Raises UsageError.

    A signal ends the work; what is complete is written.
    """
    from torchbeast.analysis import stitching_report

    # A few moments at a time: a second thread gains little, and on a busy machine it costs.
    torch.set_num_threads(1)
    front, back, *controls = players = read_agents(config.front, config.back, *config.controls)
    check_agents(players, config.layers)
    games = choose_known_games(players, config.games)
    make_directory(config.directory)  # Before the games are played.
    rows: list[Row] = []
    with signals:
        try:
            for game in games:
                for row in stitch_in_game(front, back, controls, game, config, signals.check):
                    rows.append(row)
        except StopRequestedError:
            what = "what is complete" if choose_complete(rows) else "nothing: no agent is stitched"
            print(f"Saving {what} ({signals.HINT})", file=sys.stderr)
        complete = choose_complete(rows)
        return stitching_report.save(complete, config.directory) if complete else []
