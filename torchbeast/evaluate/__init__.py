"""What is done with trained agents: ``--mode test``, ``test_render``, ``record``, ``env_info``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from torchbeast.core.command import run_command
from torchbeast.core.threads import StopSignals


def run_mode(
    name: str, flags: argparse.Namespace, train: Callable[[argparse.Namespace, StopSignals], int]
) -> int:
    """A trainer's command line; returns the exit code. ``train`` is its own mode of that name."""

    def work(signals: StopSignals) -> int:
        if flags.mode == "train":
            return train(flags, signals)
        run(flags)
        return 0

    return run_command(name, work)


def run(flags: argparse.Namespace) -> None:
    """Runs any ``--mode`` but train. Raises UsageError."""
    if flags.mode != "env_info":
        import torch

        # A few pictures at a time: a second thread gains little, and on a busy machine it costs.
        torch.set_num_threads(1)
    if flags.mode == "test":
        from torchbeast.evaluate.scoring import run_test

        run_test(flags)
    elif flags.mode == "record":
        from torchbeast.evaluate.watching import record

        record(flags)
    elif flags.mode == "test_render":
        from torchbeast.evaluate.watching import render

        render(flags)
    else:
        from torchbeast.envs.info import print_games

        print_games(flags.env, as_json=flags.json)
