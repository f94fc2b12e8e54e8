"""What is done with trained agents: ``--mode test``, ``test_render``, ``record``, ``env_info``."""

from __future__ import annotations

import argparse


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
