"""What a command line asks for of a trained agent, as typed values.

Fields have the names of their flags; ``cli/flags.py`` describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torchbeast.cli.config import build


class TrainedAgentConfig(NamedTuple):
    """Where a trained agent is found."""

    savedir: str
    xpid: str | None
    """None: the newest run."""
    intermediate_model_id: int | None
    agent_type: str | None
    """The only custom class that may be imported."""
    lstm_reset: str | None = None
    """Where the memory is reset; None: where it was in training."""


class EvaluationConfig(NamedTuple):
    """What ``--mode test``, ``test_render``, ``record`` and ``env_info`` do."""

    trained: TrainedAgentConfig
    env: str | None
    """None: the games that the agent knows."""
    seed: int
    greedy: bool
    num_episodes: int
    actions: str | None
    movie: str | None
    movie_steps: int | None
    """How long a film may be; None: as long as the game."""
    json: str | None
    """The file of the JSON document; - for standard output instead of a table."""

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> EvaluationConfig:
        """Builds the configuration from the values of a trainer's flags. The default seed is 0."""
        return build(cls, {**flags, "seed": flags["seed"] or 0})
