"""What a command line asks for of a trained agent, as typed values.

Fields have the names of their flags; ``cli/flags.py`` and ``cli/training_flags.py`` describe them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torchbeast.cli.config import build
from torchbeast.cli.training_flags import POPART_FLAGS
from torchbeast.core.types import AgentConfig, ObservationConfig

# Flags that say what an agent is and what it sees. PopArt's change nothing in a trained agent.
AGENT_FLAGS = {*AgentConfig._fields, *ObservationConfig._fields} - POPART_FLAGS


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
    expected: Mapping[str, Any] = MappingProxyType({})
    """What the command line says of the agent, by flag. The checkpoint must say the same."""

    @classmethod
    def from_flags(
        cls, flags: Mapping[str, Any], given: Collection[str] = ()
    ) -> TrainedAgentConfig:
        """Builds the configuration from the values of all flags and the names of those given."""
        names = AGENT_FLAGS - {"lstm_reset"}  # It replaces what the checkpoint says.
        expected = {name: flags[name] for name in names.intersection(given)}
        return build(cls, {**flags, "expected": expected})


class PlayConfig(NamedTuple):
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
    def from_flags(cls, flags: Mapping[str, Any], given: Collection[str] = ()) -> PlayConfig:
        """Builds the configuration from the values of a trainer's flags and the names of those
        given. The default seed is 0.
        """
        config = build(cls, {**flags, "seed": flags["seed"] or 0})
        return config._replace(trained=TrainedAgentConfig.from_flags(flags, given))
