"""The flags of an agent and of how it learns."""

from __future__ import annotations

import argparse

from torchbeast.cli.parsing import agent_type, amount, fraction, positive, positive_amount
from torchbeast.core.types import SIGMA_FLOOR


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    """Adds what the agent is made of."""
    add = parser.add_argument_group("agent").add_argument
    add(
        "--agent_type",
        type=agent_type,
        default="resnet",
        help="resnet: the IMPALA ResNet. atari: a shallow CNN, several times as fast. aaa: the "
        "attention-augmented agent. package.module:Class: a custom agent. (default: %(default)s)",
    )
    add("--use_lstm", action="store_true", help="Add an LSTM: the agent gets a memory.")
    add(
        "--lstm_reset",
        choices=["life", "game"],
        help="When the memory is emptied: at the start of each life, or of each game. Saved with "
        "the agent. (default: life; except in --mode train: as in training)",
    )
    add(
        "--use_popart",
        action="store_true",
        help="One value head per game, trained on normalised targets (PopArt).",
    )
    add(
        "--value_heads",
        choices=["one", "game"],
        default="one",
        help="Without --use_popart: one value head for all games, or one for each game. "
        "(default: %(default)s)",
    )
    add(
        "--num_actions",
        type=positive,
        help="Accepted as in 2019: an error if the games have another number of actions. "
        "(default: no check)",
    )
    add(
        "--init_from",
        metavar="RUN[:STEP]",
        help="Start with the weights of a trained agent: a run, a shipped agent, or the path of a "
        "model.tar, also of 2019. Ignored where a run resumes. (default: a new agent)",
    )
    # What --preset 2019 sets.
    for name in ("--fixed_input_scale", "--torch_initial_weights"):
        add(name, action="store_true", help=argparse.SUPPRESS)


def add_learner_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how the agent learns."""
    add = parser.add_argument_group("learning").add_argument
    add(
        "--total_steps",
        type=positive,
        default=100000,
        help="Agent steps to train for. (default: %(default)s)",
    )
    add(
        "--batch_size",
        type=positive,
        default=8,
        help="Rollouts per learner step. (default: %(default)s)",
    )
    add(
        "--unroll_length",
        type=positive,
        default=80,
        help="Agent steps per rollout. (default: %(default)s)",
    )
    add(
        "--entropy_cost",
        type=amount,
        default=0.0006,
        help="Weight of the entropy bonus. (default: %(default)s)",
    )
    add(
        "--baseline_cost",
        type=amount,
        default=0.5,
        help="Weight of the value loss. (default: %(default)s)",
    )
    add(
        "--discounting", type=fraction, default=0.99, help="Discount factor. (default: %(default)s)"
    )
    add(
        "--reward_clipping",
        choices=["abs_one", "none"],
        help="abs_one: clip rewards to [-1, 1] for learning. none: do not clip. (default: abs_one; "
        "none with --use_popart)",
    )
    add("--beta", type=fraction, default=0.00001, help="PopArt's step size. (default: %(default)s)")
    add("--beta_per", choices=["target", "batch"], default="target", help=argparse.SUPPRESS)
    add(
        "--sigma_floor",
        type=fraction,
        default=SIGMA_FLOOR,
        help="PopArt's sigma of a game is at least this share of the mean size of its rewards. "
        "(default: %(default)s)",
    )
    add_optimizer_flags(parser)


def add_optimizer_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how gradients move the weights."""
    add = parser.add_argument_group("optimizer").add_argument
    add(
        "--optimizer",
        choices=["rmsprop", "adam"],
        default="rmsprop",
        help="The optimizer. (default: %(default)s)",
    )
    add(
        "--learning_rate",
        type=amount,
        default=0.00048,
        help="Learning rate at the start; it falls linearly to 0 at --total_steps. "
        "(default: %(default)s)",
    )
    add(
        "--alpha",
        type=fraction,
        default=0.99,
        help="RMSProp's smoothing constant. (default: %(default)s)",
    )
    add("--momentum", type=amount, default=0.0, help="RMSProp's momentum. (default: %(default)s)")
    add(
        "--epsilon",
        type=positive_amount,
        default=0.01,
        help="Epsilon of RMSProp or Adam. (default: %(default)s)",
    )
    add(
        "--grad_norm_clipping",
        type=positive_amount,
        default=40.0,
        help="A gradient with a larger norm is scaled to this norm. (default: %(default)s)",
    )
