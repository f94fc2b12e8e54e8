"""The flags of a run's files."""

from __future__ import annotations

import argparse

from torchbeast.cli.parsing import directory, natural, positive

DEFAULT_SAVEDIR = "~/logs/torchbeast"


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Adds where the files of a run are, and which of them are written."""
    add = parser.add_argument_group("run").add_argument
    add(
        "--xpid",
        help="Name of the run. Except in --mode train also a shipped agent, or the path of a "
        "model.tar. (default: torchbeast-<date>-<time>; except in --mode train: the newest run)",
    )
    add(
        "--savedir",
        type=directory,
        default=DEFAULT_SAVEDIR,
        help="Directory of all runs; ~ and $VARIABLES are expanded. (default: %(default)s)",
    )
    add(
        "--disable_checkpoint",
        action="store_true",
        help="Do not save checkpoints. Refused where the run has one already.",
    )
    add(
        "--checkpoint_interval_s",
        type=positive,
        default=600,
        help="Seconds between checkpoints. (default: %(default)s)",
    )
    add(
        "--save_model_every_nsteps",
        type=natural,
        default=0,
        help="Agent steps between copies of the model that are kept, as "
        "intermediate/model.<step>.tar. 0: keep none. (default: %(default)s)",
    )
    add(
        "--track_gradients",
        action="store_true",
        help="Record norm, mean, standard deviation and peak of each layer's gradient, in "
        "gradients.csv and TensorBoard. torchbeast.analysis.plot_runs draws them.",
    )
    add(
        "--logger",
        choices=["wandb"],
        help="Log to Weights & Biases, too. (default: only logs.csv and TensorBoard)",
    )
    add(
        "--write_profiler_trace",
        action="store_true",
        help="Write a profile of some learner steps, trace.json, for chrome://tracing or Perfetto.",
    )
