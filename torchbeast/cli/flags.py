"""The flags that command lines share: each once, with its help.

Nothing heavy is imported here: ``--help`` answers at once.
"""

from __future__ import annotations

import argparse

from torchbeast.cli.agent_flags import add_agent_flags, add_learner_flags
from torchbeast.cli.evaluation_flags import add_evaluation_flags
from torchbeast.cli.parsing import agent_type, directory, natural, positive
from torchbeast.cli.presets import PRESETS
from torchbeast.cli.run_flags import DEFAULT_SAVEDIR, add_run_flags
from torchbeast.runtime.allocation import DEFAULT_NUM_ACTORS

DEFAULT_ENV = "PongNoFrameskip-v4"


def add_mode_flag(parser: argparse.ArgumentParser) -> None:
    """What to do."""
    parser.add_argument(
        "--mode",
        choices=["train", "test", "test_render", "record", "env_info"],
        default="train",
        help="train: train an agent (default). test: score it over full games. test_render: watch "
        "it in a window. record: film a game. env_info: list games and their actions.",
    )


def add_preset_flag(parser: argparse.ArgumentParser) -> None:
    """Which defaults the other flags have."""
    parser.add_argument(
        "--preset",
        choices=list(PRESETS),
        default="default",
        help="Defaults for the other flags: "
        + "; ".join(
            f"{name}: " + (", ".join(f"{k} {v}" for k, v in preset.items()) or "as listed here")
            for name, preset in PRESETS.items()
        ),
    )


def add_training_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """What every trainer takes. Returns the group of the machine, for more."""
    add_mode_flag(parser)
    add_preset_flag(parser)
    add_env_flags(parser)
    add_run_flags(parser)
    add_agent_flags(parser)
    add_learner_flags(parser)
    add_evaluation_flags(parser)
    return add_machine_flags(parser)


def add_env_flags(parser: argparse.ArgumentParser) -> None:
    """Which games, and how they are presented."""
    group = parser.add_argument_group("games")
    group.add_argument(
        "--env",
        help="Games, separated by commas: Pong, PongNoFrameskip-v4 or ALE/Pong-v5; the groups "
        "three (AirRaid, Carnival, DemonAttack), six (those, NameThisGame, Pong, SpaceInvaders), "
        "all; "
        "package.module:Id for a Gymnasium environment of your own. "
        f"Default: {DEFAULT_ENV}; in test the agent's games.",
    )
    group.add_argument(
        "--preprocessing",
        choices=["deepmind", "machado"],
        default="deepmind",
        help="deepmind: no-op starts, lives end training episodes. "
        "machado: sticky actions, all 18 actions, whole games.",
    )
    group.add_argument(
        "--frame_format",
        "--aaa_input_format",
        choices=["gray_stack", "rgb_last", "rgb_stack"],
        default="gray_stack",
        help="gray_stack: four gray pictures. rgb_last: the newest in colour. rgb_stack: four in "
        "colour. (default: %(default)s)",
    )
    group.add_argument("--frame_height", type=positive, default=84, help="Rows; a game has 210.")
    group.add_argument("--frame_width", type=positive, default=84, help="Columns; a game has 160.")
    group.add_argument(
        "--seed", type=natural, help="Seed of everything random (default: a new one every run)."
    )
    group.add_argument(
        "--step_timeout_s",
        type=positive,
        default=300,
        help="Seconds after which a step of an environment counts as hung: its process is "
        "replaced (default: %(default)s).",
    )


def add_server_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """How actor pool and environment servers find each other. Returns the group, for more."""
    group = parser.add_argument_group("environment servers")
    group.add_argument(
        "--pipes_basename",
        help="Server i listens on this with .i appended (unix:/path) or with i added to the port "
        "(host:port). Default: a private directory of the run.",
    )
    group.add_argument(
        "--num_servers",
        type=positive,
        help="Server processes (default: one per core, at least one per game).",
    )
    group.add_argument(
        "--tls_dir",
        help="Directory with cert.pem, key.pem and root.pem: needed for servers on other machines.",
    )
    return group


def add_machine_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """How the machine is used. Returns the group, for more."""
    group = parser.add_argument_group("machine")
    add = group.add_argument
    add(
        "--game_weights",
        help="Divide the environments unequally among the games: Pong=2,Breakout=1 gives Pong "
        "twice as many. A game that is not named has the weight 1 (default: equal shares).",
    )
    add("--num_learner_threads", "--num_threads", type=positive, help="Default: by cores.")
    add("--cores", type=positive, help="Cores to use (default: those this process may use).")
    add("--disable_cuda", action="store_true", help="Do not use a GPU.")
    add(
        "--precision",
        choices=["auto", "float32", "bfloat16"],
        default="auto",
        help="Precision of the convolutions; auto: bfloat16 where the hardware has it.",
    )
    return group


def add_pool_flags(parser: argparse.ArgumentParser) -> None:
    """How the actor pool feeds inference and learner."""
    group = parser.add_argument_group("actor pool")
    add = group.add_argument
    add(
        "--num_actors",
        type=positive,
        help=f"Environments in parallel (default: {DEFAULT_NUM_ACTORS}, rounded up so that "
        "the games have equal shares, or those of --game_weights).",
    )
    add("--num_inference_threads", type=positive, help="Default: by cores.")
    add("--max_learner_queue_size", type=positive, help="Rollouts (default: batch_size).")
    add(
        "--max_environment_failures",
        type=positive,
        default=3,
        help="How often an environment may raise an exception, or a server break the protocol, "
        "within --failure_window_s until the run ends (default: %(default)s).",
    )
    add(
        "--failure_window_s",
        type=positive,
        default=600,
        help="Seconds after which a failure is forgotten (default: %(default)s).",
    )
    add(
        "--synchronous",
        action="store_true",
        help="Act only with weights that have learned from all steps before. With --num_actors 1, "
        "--num_learner_threads 1 and --seed a run repeats bit for bit.",
    )


def add_intermediate_flag(parser: argparse.ArgumentParser) -> None:
    """Which of a run's checkpoints."""
    parser.add_argument(
        "--intermediate_model_id",
        type=natural,
        help="Step number of intermediate/model.<step>.tar to take (default: model.tar).",
    )


def add_trained_flags(parser: argparse.ArgumentParser) -> None:
    """Which trained agent, for programs that look at one."""
    group = parser.add_argument_group("agent")
    add = group.add_argument
    add(
        "--savedir",
        type=directory,
        default=DEFAULT_SAVEDIR,
        help="Directory of all runs (default: %(default)s).",
    )
    add("--xpid", help="Name of a run or shipped agent, or path of a model.tar (default: latest).")
    add_intermediate_flag(parser)
    add("--agent_type", type=agent_type, help="Allows an agent of your own: package.module:Class.")
    add("--use_lstm", action="store_true", help="As in 2019; the checkpoint decides.")


def add_watched_game_flags(
    parser: argparse.ArgumentParser, *, first_frame: int, num_frames: int
) -> None:
    """Which steps of which game to look at; the last two are defaults."""
    group = parser.add_argument_group("game")
    add = group.add_argument
    add("--env", help="Game (default: the agent's, if it knows one only).")
    add("--seed", type=natural, default=0, help="Seed of the game (default: %(default)s).")
    add("--actions", help="File of actions (integers) to play instead of the agent's.")
    add(
        "--first_frame",
        type=natural,
        default=first_frame,
        help="Step to begin at (default: %(default)s).",
    )
    add(
        "--num_frames",
        type=positive,
        default=num_frames,
        help="Steps to show (default: %(default)s).",
    )
    add("--movie", help="Film it, too: a .gif or .mp4.")


def add_test_flags(parser: argparse.ArgumentParser) -> None:
    """How an agent is watched and scored."""
    add_intermediate_flag(parser)
    group = parser.add_argument_group("test")
    add = group.add_argument
    add(
        "--num_episodes", type=positive, default=10, help="Full games per game (test, test_render)."
    )
    add(
        "--sample",
        dest="greedy",
        action="store_false",
        help="Sample actions from the policy instead of taking the likeliest.",
    )
    add("--greedy", action="store_true", default=True, help="Take the likeliest action (default).")
    add("--json", nargs="?", const="-", metavar="FILE", help="Print JSON, or write it to FILE.")
    add("--actions", help="File of actions (integers) to play first instead of the agent's.")
    add(
        "--movie",
        help="File to record, .gif or .mp4, or directory of films (default: movies/ in the run's "
        "directory). Films are named <xpid>_<step>_<env>.gif.",
    )
