"""The flags of agents, learning, evaluation, machine and processes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from torchbeast.cli.parsing import (
    agent_type,
    amount,
    directory,
    fraction,
    natural,
    positive,
    positive_amount,
)
from torchbeast.core.types import AgentConfig, LossConfig, OptimizerConfig
from torchbeast.runtime.allocation import DEFAULT_NUM_ACTORS, default_num_actors

AGENT, LOSS, OPTIMIZER = AgentConfig(), LossConfig(), OptimizerConfig()

# Flags without effect where there is no PopArt.
POPART_FLAGS = {"beta", "beta_per", "sigma_floor", "unit_statistics"}


def resolve_flags(flags: Mapping[str, Any], num_games: int) -> dict[str, Any]:
    """Returns the values in training of the flags whose default depends on others or on the mode.

    Args:
        flags: the values of a trainer's flags; those that are missing or None were not given.
        num_games: how many games ``--env`` names.
    """
    default_clipping = "none" if flags.get("use_popart") else "abs_one"
    return {
        "lstm_reset": flags.get("lstm_reset") or AGENT.lstm_reset,
        "reward_clipping": flags.get("reward_clipping") or default_clipping,
        "num_actors": flags.get("num_actors") or default_num_actors(num_games),
    }


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    """Adds what the agent is made of."""
    add = parser.add_argument_group("agent").add_argument
    add(
        "--agent_type",
        type=agent_type,
        default=AGENT.agent_type,
        help="resnet: the IMPALA ResNet. atari: a shallow CNN, several times as fast. aaa: the "
        "attention-augmented agent. package.module:Class: a custom agent. (default: %(default)s)",
    )
    add("--use_lstm", action="store_true", help="Add an LSTM: the agent gets a memory.")
    add(
        "--lstm_reset",
        choices=["life", "game"],
        help="When the memory is emptied: at the start of each life, or of each game. Saved with "
        "the agent. (default: life; in other modes than train as in training)",
    )
    add(
        "--use_popart",
        action="store_true",
        help="One value head per game, trained on normalised targets (PopArt).",
    )
    add(
        "--value_heads",
        choices=["one", "game"],
        default=AGENT.value_heads,
        help="Without --use_popart: one value head for all games, or one for each game. "
        "(default: %(default)s)",
    )
    add(
        "--num_actions",
        type=positive,
        # Accepted as in 2019: an error if the games have another number of actions.
        help=argparse.SUPPRESS,
    )
    add(
        "--init_from",
        metavar="RUN[:STEP]",
        help="Start with the weights of a trained agent: a run, a shipped agent, or the path of a "
        "model.tar, also of 2019. Ignored where a run resumes. (default: a new agent)",
    )
    add(
        "--fixed_input_scale",
        action="store_true",
        help="The network's input is x / 255, as in 2019, not centred and scaled for each game.",
    )
    add(
        "--torch_initial_weights",
        action="store_true",
        help="Keep PyTorch's initial weights, as in 2019.",
    )


def add_learner_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how the agent learns."""
    add = parser.add_argument_group("learning").add_argument
    add(
        "--total_steps",
        type=positive,
        default=OPTIMIZER.total_steps,
        help="Agent steps to train for, in all games together. (default: %(default)s)",
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
        default=LOSS.entropy_cost,
        help="Weight of the entropy bonus. (default: %(default)s)",
    )
    add(
        "--baseline_cost",
        type=amount,
        default=LOSS.baseline_cost,
        help="Weight of the value loss. (default: %(default)s)",
    )
    add(
        "--discounting",
        type=fraction,
        default=LOSS.discounting,
        help="Discount factor. (default: %(default)s)",
    )
    add(
        "--reward_clipping",
        choices=["abs_one", "none"],
        help="abs_one: clip rewards to [-1, 1] for learning. none: do not clip. (default: abs_one; "
        "none with --use_popart)",
    )
    add(
        "--beta",
        type=fraction,
        default=AGENT.beta,
        help="PopArt's step size. (default: %(default)s)",
    )
    add(
        "--beta_per",
        choices=["target", "batch"],
        default=AGENT.beta_per,
        help="target: each value target moves PopArt's statistics by --beta, before the update. "
        "batch: all targets of a batch together, after it, as in 2019. (default: %(default)s)",
    )
    add(
        "--sigma_floor",
        type=fraction,
        default=AGENT.sigma_floor,
        help="PopArt's sigma of a game is at least this share of the mean of its absolute rewards "
        "that are not 0. (default: %(default)s)",
    )
    add(
        "--unit_statistics",
        action="store_true",
        help="PopArt's statistics start at mean 0 and deviation 1, not at those of random play.",
    )
    add_optimizer_flags(parser)


def add_optimizer_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how gradients move the weights."""
    add = parser.add_argument_group("optimizer").add_argument
    add(
        "--learning_rate",
        type=amount,
        default=OPTIMIZER.learning_rate,
        help="Learning rate at the start; it falls linearly to 0 at --total_steps. "
        "(default: %(default)s)",
    )
    add(
        "--alpha",
        type=fraction,
        default=OPTIMIZER.alpha,
        help="RMSProp's smoothing constant. (default: %(default)s)",
    )
    add(
        "--momentum",
        type=amount,
        default=OPTIMIZER.momentum,
        help="RMSProp's momentum. (default: %(default)s)",
    )
    add(
        "--epsilon",
        type=positive_amount,
        default=OPTIMIZER.epsilon,
        help="RMSProp's epsilon. (default: %(default)s)",
    )
    add(
        "--grad_norm_clipping",
        type=positive_amount,
        default=OPTIMIZER.grad_norm_clipping,
        help="A gradient with a larger norm is scaled to this norm. (default: %(default)s)",
    )


def add_evaluation_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how often the agent in training plays full games, and what that may cost."""
    add = parser.add_argument_group("evaluation while training, in a separate process").add_argument
    add(
        "--evaluate_every",
        type=natural,
        default=0,
        metavar="STEPS",
        help="Agent steps between evaluations. Every game is played with the most probable actions "
        "and with sampled actions; scores.csv gets the scores. 0: never. (default: %(default)s)",
    )
    add(
        "--evaluation_episodes",
        type=positive,
        default=5,
        metavar="N",
        help="Full games per evaluation, game and kind of action. (default: %(default)s)",
    )


def add_server_flags(
    parser: argparse.ArgumentParser, default_basename: str, several_hosts: str = ""
) -> argparse._ArgumentGroup:
    """Adds how actor pool and servers find each other.

    Args:
        default_basename: what the help of ``--pipes_basename`` says of its default.
        several_hosts: what it says of several hosts.

    Returns:
        The group, for more.
    """
    group = parser.add_argument_group("environment servers")
    group.add_argument(
        "--pipes_basename",
        help="Address of the servers. Server i listens on unix:/path.i, or on host:port with i "
        f"added to the port.{several_hosts} (default: {default_basename})",
    )
    group.add_argument(
        "--num_servers",
        type=positive,
        help="Server processes, each of one game. (default: about one per core, and equally many "
        "for each game)",
    )
    group.add_argument(
        "--tls_dir",
        type=directory,
        help="Directory with cert.pem, key.pem and root.pem; needed for servers on other machines. "
        "(default: no encryption, this machine only)",
    )
    return group


def add_machine_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds how the machine is used. Returns the group, for more."""
    group = parser.add_argument_group("machine")
    add = group.add_argument
    add(
        "--num_learner_threads",
        "--num_threads",
        type=positive,
        help="Threads that compute gradients. (default: 2 with a GPU, else by the number of cores, "
        "at most --batch_size)",
    )
    add(
        "--cores",
        type=positive,
        help="Cores that threads, servers and actors are planned for. (default: "
        "all that this process may use)",
    )
    add("--disable_cuda", action="store_true", help="Do not use a GPU.")
    add(
        "--precision",
        choices=["auto", "float32", "bfloat16"],
        default="auto",
        help="Precision of the encoder. auto: bfloat16 where the hardware has it, else "
        "float32. (default: %(default)s)",
    )
    return group


def add_pool_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how the actor pool feeds inference and learner."""
    add = parser.add_argument_group("actor pool").add_argument
    add(
        "--num_actors",
        type=positive,
        help=f"Environments that run in parallel. (default: {DEFAULT_NUM_ACTORS}, rounded up so "
        "that the games have equal shares)",
    )
    add(
        "--num_inference_threads",
        type=positive,
        help="Threads that compute actions. (default: 1, or 2 with a GPU)",
    )
    add(
        "--max_learner_queue_size",
        type=positive,
        help="Most rollouts that wait for the learner. (default: --batch_size)",
    )
    add(
        "--synchronous",
        action="store_true",
        help="Wait with each action until the learner has learned from all earlier rollouts. "
        "Together with --num_actors 1, --num_learner_threads 1 and --seed a run on a CPU repeats "
        "bit for bit.",
    )
