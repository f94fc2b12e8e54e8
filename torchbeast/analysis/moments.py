"""Moments of games that an agent plays: what it sees, and what it remembers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from torchbeast.core.types import EnvOutput
from torchbeast.evaluate.playing import PARALLEL_GAMES, GameLoop, open_games
from torchbeast.evaluate.trained import Trained
from torchbeast.models.recurrence import CoreState

FIRST_STEP = 40  # The first frames of all games are nearly the same.
STEPS_APART = 4  # Neighbouring frames are nearly the same.


@dataclasses.dataclass(frozen=True)
class Moments:
    """An agent's inputs at moments of its games, in the order of time.

    Several games are played at the same time, so neighbouring moments are of different games.
    """

    inputs: EnvOutput
    """Leaves ``[1, N, ...]``."""
    state: CoreState
    """The recurrent state before each moment, leaves ``[L, N, H]``."""

    def __len__(self) -> int:
        return self.inputs.frame.shape[1]

    def split(self, size: int) -> Iterator[Moments]:
        """Yields parts of ``size`` moments; the last part may be smaller."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Moments(
                EnvOutput(*(leaf[:, part] for leaf in self.inputs)),
                tuple(leaf[:, part] for leaf in self.state),
            )


def play_moments(
    trained: Trained,
    env_id: str,
    count: int,
    *,
    seed: int = 0,
    steps_apart: int = STEPS_APART,
    after_step: Callable[[], object] = lambda: None,
) -> Moments:
    """Plays games side by side with sampled actions and keeps moments of them.

    Args:
        trained: the agent.
        env_id: the game.
        count: how many moments.
        seed: of the games and the actions.
        steps_apart: agent steps from one moment of a game to the next.
        after_step: is called after each step; what it raises ends the games.
    """
    seen: list[tuple[EnvOutput, CoreState]] = []
    with open_games(trained, env_id, PARALLEL_GAMES, seed=seed) as envs:
        loop = GameLoop(trained, env_id, envs, greedy=False, seed=seed)
        for _ in range(FIRST_STEP):
            loop.step()
            after_step()
        for _ in range(-(-count // PARALLEL_GAMES)):
            for _ in range(steps_apart):
                loop.step()
                after_step()
            seen.append((loop.inputs, loop.state))
    inputs, states = zip(*seen, strict=True)
    return Moments(
        EnvOutput(*(torch.cat(leaves, dim=1)[:, :count] for leaves in zip(*inputs, strict=True))),
        tuple(torch.cat(leaves, dim=1)[:, :count] for leaves in zip(*states, strict=True)),
    )


def play_frames(trained: Trained, env_id: str, count: int, *, seed: int = 0) -> Tensor:
    """Returns ``count`` frames ``[N, C, H, W]`` of games that the agent plays, actions sampled."""
    return play_moments(trained, env_id, count, seed=seed).inputs.frame[0]
