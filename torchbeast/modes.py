"""The modes of the trainers: ``train``, ``test``, ``test_render``, ``record`` and ``env_info``."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence

from torchbeast.cli.command import run_command
from torchbeast.cli.flags import PLAYING_FLAGS, SHOWN_FLAGS
from torchbeast.cli.parsing import Parser
from torchbeast.cli.training_flags import POPART_FLAGS
from torchbeast.play.config import AGENT_FLAGS, PlayConfig
from torchbeast.play.json_output import check_json_target, write_json
from torchbeast.runtime.signals import StopSignals

log = logging.getLogger("torchbeast")


def run_mode(
    name: str,
    parser: Parser,
    argv: Sequence[str] | None,
    train: Callable[[argparse.Namespace, StopSignals], None],
) -> int:
    """Runs a trainer's command line.

    Args:
        argv: the command line; None: that of the process.
        train: runs the mode of that name, from the values of all flags.

    Returns:
        The exit code.
    """
    flags = parser.parse_args(argv)
    given = parser.given

    def work(signals: StopSignals) -> None:
        if flags.env is not None:  # A mistyped name is refused before torch is imported.
            from torchbeast.envs.games import parse_games

            parse_games(flags.env)
        if flags.mode == "train":
            parser.warn_of_unused(PLAYING_FLAGS, "in --mode train")
            if flags.use_popart:
                parser.warn_of_unused({"value_heads"}, "with --use_popart")
            else:
                parser.warn_of_unused(POPART_FLAGS, "without --use_popart")
            if not flags.evaluate_every:
                parser.warn_of_unused({"evaluation_episodes"}, "without --evaluate_every")
            log.info("Starting")  # The first sign: importing torch takes seconds.
            train(flags, signals)
            return
        used = {*SHOWN_FLAGS[flags.mode]}
        if flags.mode != "env_info":  # What the command line says of the agent is checked.
            used |= AGENT_FLAGS
        parser.warn_of_unused(given - used, f"in --mode {flags.mode}")
        play(flags.mode, PlayConfig.from_flags(vars(flags), given), signals)

    return run_command(name, work)


def play(mode: str, config: PlayConfig, signals: StopSignals) -> None:
    """Runs any mode but train. Raises UsageError."""
    check_json_target(config.json)
    if mode != "env_info":
        # Before torch is imported, which takes seconds.
        log.info("Loading %s", config.trained.xpid or "the newest run")
        import torch

        # A few pictures at a time: a second thread gains little, and on a busy machine it costs.
        torch.set_num_threads(1)
    if mode == "test":
        from torchbeast.play.testing import run_test

        run_test(config, signals)
    elif mode == "record":
        from torchbeast.play.films import record

        record(config, signals)
    elif mode == "test_render":
        from torchbeast.play.films import render

        render(config, signals)
    else:
        from torchbeast.envs.specs import actions_of_games

        actions = actions_of_games(config.env)
        if config.json != "-":
            width = max(map(len, actions))
            for game, names in actions.items():
                print(f"{game:{width}}  {len(names):2}  {' '.join(names)}")
        if config.json is not None:
            write_json(actions, config.json)
