"""What to expect of a run, where that was measured."""

from __future__ import annotations

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.machine_flags import add_pool_flags
from torchbeast.cli.parsing import Parser
from torchbeast.cli.presets import EXPECTATIONS
from torchbeast.training.config import TrainingConfig


def find_expectation(config: TrainingConfig, num_ranks: int) -> str | None:
    """Returns what runs like this one reached; None unless all that matters is as it was measured.

    Measured were presets of PolyBeast in one process on a single game, with every flag at its
    default that changes what an agent learns from a number of steps. Flags of speed and files may
    differ.
    """
    if num_ranks > 1 or len(config.games) != 1:
        return None
    (game,) = config.games
    parser = Parser("polybeast", "")
    flags_lib.add_training_flags(parser)
    add_pool_flags(parser)
    arguments = [f"--preset={config.preset}", f"--env={game}"]
    measured = TrainingConfig.from_flags(vars(parser.parse_args(arguments)))
    return (
        EXPECTATIONS.get((config.preset, game)) if _essence(config) == _essence(measured) else None
    )


def _essence(config: TrainingConfig) -> tuple[object, ...]:
    """What decides how much an agent learns from a number of steps."""
    return (
        config.observation,
        config.network,
        config.learning,
        config.optimizer,
        config.machine.num_actors,
        config.pool,
    )
