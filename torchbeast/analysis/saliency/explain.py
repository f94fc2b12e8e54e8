"""An agent's saliency while it plays a game, step by step."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchbeast.analysis.overlays import Grid
from torchbeast.analysis.saliency.perturbation import Outputs, Perturbation
from torchbeast.analysis.saliency.scores import POLICY, VALUE, Subject, parse_scores
from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.envs.games import short_name
from torchbeast.evaluate.actions import action_names
from torchbeast.evaluate.playing import GameLoop, watch_game
from torchbeast.evaluate.trained import Trained, choose_game, read_agents

log = logging.getLogger("torchbeast")


@dataclass(frozen=True)
class SaliencyConfig:
    """How maps are made."""

    density: int = 2  # Pixels between masks.
    radius: float = 5.0  # Standard deviation of a mask, in pixels.
    batch_size: int = 64  # Masks per forward pass.
    dtype: torch.dtype = torch.float32  # Of the encoder.
    device: str = "cpu"  # Where it computes.


@dataclass(frozen=True)
class Step:
    """One step of a game, and what the agent computed there with and without masks."""

    step: int  # Agent steps since the game began.
    picture: np.ndarray  # uint8 [H, W, 3], what the game shows.
    action: int  # The action played.
    outputs: Outputs
    inputs: EnvOutput  # What the agent saw, leaves [1, 1, ...].
    state: tuple[Tensor, ...]  # Its recurrent state before.
    subject: Subject
    grid: Grid

    @property
    def policy(self) -> np.ndarray:
        """The map of the score ``policy``, float32 ``[rows, columns]``."""
        return self.score(POLICY)

    @property
    def value(self) -> np.ndarray:
        """The map of the score ``value``, float32 ``[rows, columns]``."""
        return self.score(VALUE)

    def score(self, name: str) -> np.ndarray:
        """Returns the map of any score, such as ``action:FIRE``.

        Raises UsageError for an unknown one.
        """
        (score,) = parse_scores([name], self.subject)
        return score(self.outputs, self.action)


class Explainer:
    """Plays a game with a trained agent and yields its steps with their outputs under masks.

    Args:
        trained: the agent.
        game: the game's id.
        config: how maps are made.

    Raises:
        UsageError: the agent knows several games and not this one, so that it has no value head and
            no mean picture for it.
    """

    def __init__(self, trained: Trained, game: str, config: SaliencyConfig) -> None:
        agent = trained.agent
        names = tuple(action_names(trained, game))
        check_game(trained, game)
        agent.compute_dtype = config.dtype
        self.trained, self.game, self.config = trained, game, config
        has_heads = agent.config.use_popart or agent.config.num_heads > 1
        self.subject = Subject(
            names,
            agent.config.tasks,
            trained.find_task(game) if has_heads else 0,
            has_heads,
        )
        self.perturbation = Perturbation(
            agent,
            density=config.density,
            radius=config.radius,
            batch_size=config.batch_size,
            device=config.device,
        )

    def describe(self) -> dict[str, Any]:
        """Describes how the maps were made, as plain values."""
        popart = self.trained.agent.baseline
        statistics = {}
        if isinstance(popart, PopArtLayer):
            statistics = {"mu": popart.mu.numpy(), "sigma": popart.sigma.numpy()}
        return {
            "xpid": self.trained.xpid,
            "model": self.trained.model_id,
            "env": self.game,
            "density": self.config.density,
            "radius": self.config.radius,
            "precision": str(self.config.dtype).removeprefix("torch."),
            **statistics,
        }

    def watch(
        self,
        *,
        first_frame: int = 0,
        num_frames: int,
        seed: int = 0,
        actions: Sequence[int] = (),
    ) -> Iterator[Step]:
        """Yields the steps of one game.

        Args:
            first_frame: the first step wanted.
            num_frames: how many; fewer if the game ends.
            seed: of the game.
            actions: are played first, instead of the agent's.

        Raises:
            UsageError: the game ends before ``first_frame``.
        """

        def look(loop: GameLoop) -> tuple[Outputs, EnvOutput, tuple[Tensor, ...]]:
            # The loop writes the next frame over this one.
            inputs = EnvOutput(*(leaf.clone() for leaf in loop.inputs))
            return self.perturbation(inputs, loop.state), inputs, loop.state

        watched = watch_game(
            self.trained,
            self.game,
            look,
            seed=seed,
            actions=actions,
            first_frame=first_frame,
            num_frames=num_frames,
        )
        for step, picture, (outputs, inputs, state), loop in watched:
            action = int(loop.last_actions[0])
            yield Step(
                step,
                picture,
                action,
                outputs,
                inputs,
                state,
                self.subject,
                self.perturbation.grid,
            )


def check_game(trained: Trained, game: str) -> None:
    """Refuses a game whose value head and mean picture would be a guess.

    An agent of one game has one of each: it can play another game, with a warning. An agent of
    several games raises UsageError.
    """
    known = trained.games
    if short_name(game) in known:
        return
    if len(known) > 1:
        raise UsageError(
            f"{trained.xpid} was not trained on {short_name(game)}: it has value heads and mean "
            f"pictures of {', '.join(known)} only"
        )
    log.warning(
        "%s was trained on %s, not on %s: its value and its mean picture are those of %s",
        trained.xpid,
        known[0],
        short_name(game),
        known[0],
    )


def saliency(
    path: str | Path,
    game: str | None = None,
    *,
    first_frame: int = 0,
    num_frames: int = 100,
    seed: int = 0,
    config: SaliencyConfig | None = None,
    agent_type: str | None = None,
) -> Iterator[Step]:
    """Plays a game with a trained agent and yields its saliency at every step.

    Args:
        path: a run's directory or a checkpoint.
        game: the game's id; by default the only one that the agent knows.
        first_frame: the first step wanted.
        num_frames: how many.
        seed: of the game.
        config: how maps are made.
        agent_type: the only custom class that may be imported, ``package.module:Class``.

    Raises:
        UsageError: there is no such agent or it does not know the game.
    """
    (trained,) = read_agents(Path(path), agent_type=agent_type)
    explainer = Explainer(trained, choose_game(trained, game), config or SaliencyConfig())
    yield from explainer.watch(first_frame=first_frame, num_frames=num_frames, seed=seed)
