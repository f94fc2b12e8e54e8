"""The flags of a run's files."""

from __future__ import annotations

import argparse

from torchbeast.cli.parsing import directory, natural, positive

DEFAULT_SAVEDIR = "~/logs/torchbeast"


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Where a run lives on disk."""
    add = parser.add_argument_group("run").add_argument
    add(
        "--xpid",
        help="Name of the run; in test also a shipped agent's, or a path of a model.tar (default: "
        "torchbeast-<date>-<time>; in test: latest).",
    )
    add(
        "--savedir",
        type=directory,
        default=DEFAULT_SAVEDIR,
        help="Directory of all runs; ~ and $VARIABLES are expanded (default: %(default)s).",
    )
    add("--disable_checkpoint", action="store_true", help="Do not save checkpoints.")
    add(
        "--checkpoint_interval_s",
        type=positive,
        default=600,
        help="Seconds between checkpoints (default: %(default)s).",
    )
    add(
        "--save_model_every_nsteps",
        type=natural,
        default=0,
        help="Keep a copy of the model as intermediate/model.<step>.tar every so many steps.",
    )
    add(
        "--track_gradients",
        action="store_true",
        help="Record norm, mean, spread and peak of each layer's gradient: gradients.csv, "
        "TensorBoard, and a plot by torchbeast.analysis.plot_runs.",
    )
    add(
        "--logger",
        help="Log to wandb, mlflow, or module:Class, a logger of your own, in addition to logs.csv "
        "and TensorBoard. Several are separated by commas.",
    )
    add(
        "--write_profiler_trace",
        action="store_true",
        help="Write a trace of some learner steps, trace.json, for chrome://tracing or Perfetto.",
    )
