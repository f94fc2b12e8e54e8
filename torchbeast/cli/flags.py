"""The flags that command lines share: each once, with its help.

Nothing heavy is imported here: ``--help`` answers at once.
"""

from __future__ import annotations

import argparse

from torchbeast.cli.evaluation_flags import add_evaluation_flags
from torchbeast.cli.parsing import agent_type, amount, fraction, natural, positive
from torchbeast.cli.presets import PRESETS
from torchbeast.runtime.allocation import DEFAULT_NUM_ACTORS

DEFAULT_ENV = "PongNoFrameskip-v4"
DEFAULT_SAVEDIR = "~/logs/torchbeast"


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


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Where a run lives on disk."""
    add = parser.add_argument_group("run").add_argument
    add(
        "--xpid",
        help="Name of the run, or in test of a shipped agent (default: torchbeast-<date>-<time>; "
        "in test: latest).",
    )
    add(
        "--savedir",
        default=DEFAULT_SAVEDIR,
        help="Directory of all runs (default: %(default)s).",
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
        "--write_profiler_trace",
        action="store_true",
        help="Write a trace of some learner steps, trace.json, for chrome://tracing or Perfetto.",
    )


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    """What the agent is made of."""
    add = parser.add_argument_group("agent").add_argument
    add(
        "--agent_type",
        type=agent_type,
        default="resnet",
        help="resnet: the IMPALA ResNet. atari: a shallow CNN, several times as fast. aaa: the "
        "attention-augmented agent. package.module:Class: your own. (default: %(default)s)",
    )
    add("--use_lstm", action="store_true", help="Give the agent a memory.")
    add(
        "--use_popart",
        action="store_true",
        help="Normalise the targets of each game's value head (PopArt).",
    )
    add("--num_actions", type=positive, help="Checked against the games, which decide.")
    add(
        "--fixed_input_scale",
        action="store_true",
        help="Feed frames as x / 255, as in 2019, not as differences from a mean picture.",
    )
    add(
        "--torch_initial_weights",
        action="store_true",
        help="Begin as in 2019: PyTorch's own weights, PopArt's statistics 0 and 1.",
    )


def add_learner_flags(parser: argparse.ArgumentParser) -> None:
    """How it learns."""
    add = parser.add_argument_group("learning").add_argument
    add("--total_steps", type=positive, default=100000, help="Agent steps to train for.")
    add("--batch_size", type=positive, default=8, help="Rollouts per learner step.")
    add("--unroll_length", type=positive, default=80, help="Agent steps per rollout.")
    add("--entropy_cost", type=amount, default=0.0006, help="Weight of the entropy bonus.")
    add("--baseline_cost", type=amount, default=0.5, help="Weight of the value loss.")
    add("--discounting", type=fraction, default=0.99, help="Discount factor.")
    add(
        "--reward_clipping",
        choices=["abs_one", "none"],
        help="Clip rewards to [-1, 1] for learning (default), or not (default with --use_popart).",
    )
    add("--beta", type=fraction, default=0.0003, help="PopArt's step size (default: %(default)s).")
    add(
        "--beta_per",
        choices=["target", "batch"],
        default="target",
        help="Step per value target (default), or per batch and after its update, as in 2019.",
    )
    group = parser.add_argument_group("optimizer")
    add = group.add_argument
    add("--optimizer", choices=["rmsprop", "adam"], default="rmsprop")
    add("--learning_rate", type=amount, default=0.00048, help="Falls linearly to 0.")
    add("--alpha", type=fraction, default=0.99, help="RMSProp smoothing constant.")
    add("--momentum", type=amount, default=0.0, help="RMSProp momentum.")
    add("--epsilon", type=amount, default=0.01, help="RMSProp or Adam epsilon.")
    add("--grad_norm_clipping", type=amount, default=40.0, help="Largest norm of the gradient.")


def add_machine_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """How the machine is used. Returns the group, for more."""
    group = parser.add_argument_group("machine")
    add = group.add_argument
    add("--num_learner_threads", "--num_threads", type=positive, help="Default: by cores.")
    add("--cores", type=positive, help="Cores to use (default: those this process may use).")
    add("--disable_cuda", action="store_true", help="Do not use a GPU.")
    add(
        "--precision",
        choices=["auto", "float32", "bfloat16"],
        default="auto",
        help="Of the convolutions; auto: bfloat16 where the hardware has it.",
    )
    return group


def add_pool_flags(parser: argparse.ArgumentParser) -> None:
    """How the actor pool feeds inference and learner."""
    group = parser.add_argument_group("actor pool")
    add = group.add_argument
    add(
        "--num_actors",
        type=positive,
        help=f"Environments in parallel (default: {DEFAULT_NUM_ACTORS}, rounded up to a multiple "
        "of the number of games).",
    )
    add("--num_inference_threads", type=positive, help="Default: by cores.")
    add("--max_learner_queue_size", type=positive, help="Rollouts (default: batch_size).")
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
    add("--savedir", default=DEFAULT_SAVEDIR, help="Directory of all runs (default: %(default)s).")
    add("--xpid", help="Name of the run or shipped agent (default: latest).")
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
