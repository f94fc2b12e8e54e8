"""The flags that command lines share: each once, with its help.

Nothing heavy is imported here: ``--help`` answers at once.
"""

from __future__ import annotations

import argparse

from torchbeast.cli.parsing import agent_type, directory, file, natural, not_empty, positive
from torchbeast.cli.presets import DESCRIPTIONS, PRESETS
from torchbeast.cli.training_flags import (
    add_agent_flags,
    add_evaluation_flags,
    add_learner_flags,
    add_machine_flags,
)
from torchbeast.core.types import ObservationConfig

DEFAULT_SAVEDIR = "~/logs/torchbeast"
OBSERVATION = ObservationConfig()

# What --help of the trainers shows, by --mode: in all modes but train what the mode reads.
_PLAYING = (
    *("mode", "env", "seed", "xpid", "savedir", "intermediate_model_id", "agent_type", "actions"),
    "greedy",
)
SHOWN_FLAGS = {
    "": (
        *("mode", "preset", "env", "seed", "xpid", "savedir", "save_model_every_nsteps"),
        *("agent_type", "use_lstm", "use_popart", "init_from", "total_steps", "reward_clipping"),
        *("batch_size", "learning_rate", "entropy_cost", "evaluate_every", "num_actors", "cores"),
    ),
    "test": (*_PLAYING, "num_episodes", "json"),
    # The last two without a display: then a film is recorded.
    "test_render": (*_PLAYING, "num_episodes", "movie", "movie_steps"),
    "record": (*_PLAYING, "movie", "movie_steps"),
    "env_info": ("mode", "env", "json"),
}

# Flags of the modes that play, which train has no use for.
PLAYING_FLAGS = {name for names in SHOWN_FLAGS.values() for name in names} - set(SHOWN_FLAGS[""])


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Adds where the files of a run are, and which of them are written."""
    add = parser.add_argument_group("run").add_argument
    add(
        "--xpid",
        type=not_empty,
        help="Name of the run. In other modes than train also a shipped agent, or the path of a "
        "run or a model.tar. (default: torchbeast-<date>-<time>; in other modes the run that was "
        "started or resumed last)",
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
        help="Do not write model.tar. Refused where the run has one already.",
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
        help="Record norm, mean, standard deviation and largest absolute value of each layer's "
        "gradient, in gradients.csv and TensorBoard.",
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


DEFAULT_ENV = "PongNoFrameskip-v4"


def add_training_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds what every trainer takes. Returns the group of the machine, for more."""
    parser.add_argument(
        "--mode",
        choices=["train", "test", "test_render", "record", "env_info"],
        default="train",
        help="train: train an agent. test: score it over full games. test_render: watch it in a "
        "window. record: film a game. env_info: list games and their actions. "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--preset",
        choices=list(PRESETS),
        default="default",
        help="A set of defaults for the other flags; a flag that is given wins. "
        + " ".join(f"{name}: {text}" for name, text in DESCRIPTIONS.items())
        + " (default: %(default)s)",
    )
    add_env_flags(
        parser,
        f"{DEFAULT_ENV}; in other modes than train the agent's games",
        "Seed of environments, weights and actions. (default: a new one, or that of the run that "
        "is resumed; in other modes than train 0)",
    )
    add_run_flags(parser)
    add_agent_flags(parser)
    add_learner_flags(parser)
    add_evaluation_flags(parser)
    return add_machine_flags(parser)


def add_env_flags(
    parser: argparse.ArgumentParser,
    default_env: str = DEFAULT_ENV,
    seed_help: str = "Seed of the environments. (default: a new one)",
) -> None:
    """Adds the choice of the games, and how the agent observes them.

    Args:
        default_env: what the help of ``--env`` says of its default.
        seed_help: the help of ``--seed``.
    """
    group = parser.add_argument_group("games")
    group.add_argument(
        "--env",
        help="Games, separated by commas: Pong, PongNoFrameskip-v4 or ALE/Pong-v5; the groups "
        "three (AirRaid, Carnival, DemonAttack), six (those, NameThisGame, Pong, SpaceInvaders), "
        "atari57 (the 57 of most papers), all; package.module:Id for a custom Gymnasium "
        "environment. "
        f"(default: {default_env})",
    )
    group.add_argument(
        "--preprocessing",
        choices=["deepmind", "machado"],
        default=OBSERVATION.preprocessing,
        help="deepmind: a random number of no-op actions at the start; a lost life ends the "
        "training episode. machado: sticky actions, all 18 actions; only the end of the game ends "
        "the episode. (default: %(default)s)",
    )
    group.add_argument(
        "--frame_format",
        "--aaa_input_format",
        choices=["gray_stack", "rgb_last", "rgb_stack"],
        default=OBSERVATION.frame_format,
        help="What the agent sees. gray_stack: the last four frames in gray. rgb_last: the newest "
        "frame in colour. rgb_stack: the last four frames in colour. (default: %(default)s)",
    )
    group.add_argument(
        "--frame_height",
        type=positive,
        default=OBSERVATION.frame_height,
        help="Rows of a frame; the emulator draws 210. (default: %(default)s)",
    )
    group.add_argument(
        "--frame_width",
        type=positive,
        default=OBSERVATION.frame_width,
        help="Columns of a frame; the emulator draws 160. (default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=natural,
        help=seed_help,
    )
    group.add_argument(
        "--step_timeout_s",
        type=positive,
        default=300,
        help="Seconds after which a step of an environment counts as hung. Its process is "
        "replaced; at the start, before servers or actors run, the program ends. "
        "(default: %(default)s)",
    )


def add_intermediate_flag(parser: argparse.ArgumentParser) -> None:
    """Adds which of a run's checkpoints to take."""
    parser.add_argument(
        "--intermediate_model_id",
        type=natural,
        help="Load intermediate/model.<step>.tar of this step. (default: model.tar)",
    )


def add_trained_flags(parser: argparse.ArgumentParser) -> None:
    """Adds which trained agent, for programs that look at one."""
    add = parser.add_argument_group("agent").add_argument
    add(
        "--savedir",
        type=directory,
        default=DEFAULT_SAVEDIR,
        help="Directory of all runs. (default: %(default)s)",
    )
    add(
        "--xpid",
        type=not_empty,
        help="Name of a run or shipped agent, or path of a run or a model.tar. (default: the run "
        "that was started or resumed last)",
    )
    add_intermediate_flag(parser)
    add(
        "--agent_type",
        type=agent_type,
        help="package.module:Class of a custom agent. (default: what the checkpoint says)",
    )
    add(
        "--use_lstm",
        action="store_true",
        help="Accepted as in 2019: an error if the checkpoint says otherwise.",
    )


def add_watched_game_flags(
    parser: argparse.ArgumentParser, *, first_frame: int, num_frames: int
) -> None:
    """Adds which steps of which game to look at.

    Args:
        first_frame: default of ``--first_frame``.
        num_frames: default of ``--num_frames``.
    """
    group = parser.add_argument_group("game")
    add = group.add_argument
    add("--env", help="Game. (default: the agent's own, if it was trained on one)")
    add("--seed", type=natural, default=0, help="Seed of the game. (default: %(default)s)")
    _add_actions(group)
    add(
        "--first_frame",
        type=natural,
        default=first_frame,
        help="First agent step to look at. (default: %(default)s)",
    )
    add(
        "--num_frames",
        type=positive,
        default=num_frames,
        help="Number of agent steps to look at. (default: %(default)s)",
    )
    add(
        "--movie",
        type=file(".gif", ".mp4"),
        metavar="FILE",
        help="File for a film of these steps, .gif or .mp4. (default: no film)",
    )


def _add_actions(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--actions",
        help="File of actions (integers) to play first. (default: the agent's own actions)",
    )


def add_test_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how an agent is watched and scored."""
    add_intermediate_flag(parser)
    group = parser.add_argument_group("test")
    add = group.add_argument
    add(
        "--num_episodes",
        type=positive,
        default=10,
        help="How many times each game is played to its end (test, test_render). "
        "(default: %(default)s)",
    )
    add(
        "--sample",
        dest="greedy",
        action="store_false",
        help="Sample actions from the policy instead of taking the most probable one.",
    )
    add("--greedy", action="store_true", default=True, help=argparse.SUPPRESS)
    add(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="Print the result as JSON, or write it to FILE. (default: a table)",
    )
    _add_actions(group)
    add(
        "--movie",
        help="File to record, .gif or .mp4, or directory for films that are named "
        "<xpid>_<step>_<env>.gif. (default: movies/ in the run's directory)",
    )
    add(
        "--movie_steps",
        type=positive,
        help="Agent steps after which a film ends. A .gif ends after 2,000 at the latest. "
        "(default: the whole game)",
    )
