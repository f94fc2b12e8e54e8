"""The flags of an agent and of how it learns."""

from __future__ import annotations

import argparse

from torchbeast.cli.parsing import agent_type, amount, fraction, positive


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
        "--lstm_reset",
        choices=["life", "game"],
        help="Where the memory begins empty: at each life, or at each game. Saved with the agent. "
        "(default: life; in test: as in training)",
    )
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
        "--init_from",
        metavar="RUN[:STEP]",
        help="Begin with the weights of a trained agent: a run or shipped agent, or a path of a "
        "model.tar; also of 2019. Ignored where a run resumes.",
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
