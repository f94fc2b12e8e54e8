"""PopArt's step size, and what a game's first reward does to the other games.

    python benchmarks/popart.py

Three tables. How many updates the statistics need to reach the returns of a game: with --beta_per
batch (as in 2019), with --beta_per target and the same beta, with the default flags, and with a
step for every target one after the other, as the paper writes it. How far per target and one after
the other are apart on the same targets. And the gradient of a batch of four games in which one game
meets its first reward.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from _rollouts import random_rollout
from scipy.signal import lfilter
from torch import Tensor

from torchbeast.core.losses import LossConfig, rollout_losses
from torchbeast.core.optimizer import OptimizerConfig
from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import SIGMA_FLOOR, AgentOutput, EnvOutput
from torchbeast.core.update import UpdateRule
from torchbeast.models import Agent, AgentConfig, make_agent

# The step size that all rules are compared with, and that of the default flags.
BETA, DEFAULT_BETA = 0.0003, AgentConfig().beta
# Rules for the layer: name, beta_per, beta.
RULES = (
    ("per batch", "batch", BETA),
    ("per target", "target", BETA),
    ("default flags", "target", DEFAULT_BETA),
)
# Mean and standard deviation of Carnival's discounted returns under random play.
MEAN, STD = 149.0, 122.0
GAMES = 6
SEEDS = 3
FIRST_REWARD = 200.0
CLIPPING = 40.0


class Preset(NamedTuple):
    """Sizes of a batch."""

    unroll_length: int
    batch_size: int


PRESETS = {"small": Preset(20, 4), "default": Preset(80, 8)}


class Sequential:
    """The first game's statistics, moved by each of its targets in turn (Hessel et al. 2019)."""

    def __init__(self) -> None:
        self.mu, self.nu = 0.0, 1.0

    def update(self, targets: Tensor, task: Tensor) -> None:
        # Time first, as the targets followed each other.
        for target in targets[task == 0].tolist():
            self.mu += BETA * (target - self.mu)
            self.nu += BETA * (target * target - self.nu)

    @property
    def sigma(self) -> float:
        return float((self.nu - self.mu**2) ** 0.5)


class Layer:
    """The first game's statistics in a PopArt layer."""

    def __init__(self, beta_per: str, beta: float) -> None:
        self._layer = PopArtLayer(1, GAMES, beta, beta_per, SIGMA_FLOOR)

    def update(self, targets: Tensor, task: Tensor) -> None:
        self._layer.adopt(self._layer.moved(self._layer.sum_own_targets(targets, task)))

    @property
    def mu(self) -> float:
        return self._layer.mu[0].item()

    @property
    def sigma(self) -> float:
        return self._layer.sigma[0].item()


def batches(preset: Preset, num_updates: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Targets and tasks ``[T, B]`` of each update; rollouts of the games arrive in turn.

    Targets are correlated in time as discounted returns are, over about 100 steps.
    """
    generator = np.random.default_rng(seed)
    decay, last, arrived = 0.99, generator.standard_normal(GAMES), 0
    for _ in range(num_updates):
        games = (arrived + np.arange(preset.batch_size)) % GAMES
        arrived += preset.batch_size
        noise = generator.standard_normal((preset.unroll_length, preset.batch_size))
        targets = np.empty_like(noise)
        for i, game in enumerate(games):
            targets[:, i], _ = lfilter(
                [(1 - decay**2) ** 0.5], [1, -decay], noise[:, i], zi=[decay * last[game]]
            )
            last[game] = targets[-1, i]
        task = torch.from_numpy(games).expand(preset.unroll_length, -1)
        yield torch.from_numpy(MEAN + STD * targets), task


def updates_until_close(preset: Preset, seed: int) -> list[int]:
    """Updates until mu is within 10 % of the mean of the returns, by rule, on the same targets."""
    rules: list[Layer | Sequential] = [Layer(beta_per, beta) for _, beta_per, beta in RULES]
    rules.append(Sequential())
    counts = [0] * len(rules)
    for count, (targets, task) in enumerate(batches(preset, 100_000, seed), start=1):
        for i, rule in enumerate(rules):
            if counts[i] == 0:
                rule.update(targets, task)
                counts[i] = count if rule.mu > 0.9 * MEAN else 0
        if all(counts):
            break
    return counts


def compare_with_sequential(preset: Preset, num_updates: int) -> str:
    """The largest differences to the sequential rule on the same targets, in units of sigma."""
    layer, sequential = Layer("target", BETA), Sequential()
    mu_difference = sigma_difference = 0.0
    for targets, task in batches(preset, num_updates, seed=0):
        layer.update(targets, task)
        sequential.update(targets, task)
        sigma = sequential.sigma
        mu_difference = max(mu_difference, abs(layer.mu - sequential.mu) / sigma)
        sigma_difference = max(sigma_difference, abs(layer.sigma / sigma - 1))
    return f"mu {mu_difference:.5f} sigma, sigma {sigma_difference:.3%}"


def surprise(beta_per: str, beta: float, reward: float) -> tuple[Agent, EnvOutput, AgentOutput]:
    """A new agent and a rollout of each of four games; the first game pays ``reward`` at the end.

    The other games are played with returns of the scale that their statistics have.
    """
    torch.manual_seed(0)
    rows, games = 81, 4
    agent = make_agent(
        AgentConfig(
            num_actions=6,
            tasks=tuple("ABCD"),
            use_popart=True,
            beta=beta,
            beta_per=beta_per,
        )
    )
    agent.scale_initial_weights()
    rewards = 0.2 * torch.randn(rows, games)
    rewards[:, 0] = 0.0
    rewards[60, 0] = reward
    env, _ = random_rollout(rows, games, agent.config.num_actions)
    task = torch.arange(games, dtype=torch.int32).expand(rows, games)
    env = env._replace(reward=rewards, task=task)
    with torch.no_grad():
        output, _ = agent(env, sample=True)
    # Row t holds the action chosen at t - 1.
    return agent, env, AgentOutput(*(torch.roll(x, 1, dims=0) for x in output))


def gradient_norms(beta_per: str, beta: float, reward: float) -> tuple[float, float, list[float]]:
    """Norms of the whole gradient, of what clipping leaves of it, and of each game's part."""
    agent, env, actor = surprise(beta_per, beta, reward)
    losses = rollout_losses(agent, env, actor, (), LossConfig(clip_rewards=False))
    rule = UpdateRule(agent, OptimizerConfig(grad_norm_clipping=CLIPPING), lambda: None)
    gradients = rule.gradients(losses, by_task=True)
    norms = rule.prepare(gradients, losses.targets)
    total = float(norms.total)
    return total, min(1.0, CLIPPING / total), [float(norms.by_task[i]) for i in range(4)]


def print_surprise() -> None:
    print(f"\nGradient of four games; one meets its first reward, {FIRST_REWARD:g}:")
    print(f"{'':30}{'norm':>10}{'clipped to':>12}{'game A':>10}{'others':>10}{'left of them':>14}")
    for rule, beta_per, beta in RULES:
        for reward in (0.0, FIRST_REWARD):
            total, kept, games = gradient_norms(beta_per, beta, reward)
            others = sum(norm**2 for norm in games[1:]) ** 0.5
            name = f"{rule}, " + ("first reward" if reward else "no reward")
            print(
                f"{name:30}{total:10.0f}{total * kept:12.0f}{games[0]:10.0f}{others:10.0f}"
                f"{others * kept:14.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"Updates until mu is within 10 % ({GAMES} games, mean {MEAN:g}, beta {BETA:g}, default "
        f"flags {DEFAULT_BETA:g}; median of {SEEDS} seeds):"
    )
    names = [*(name for name, _, _ in RULES), "sequential"]
    print(f"{'':10}" + "".join(f"{name:>15}" for name in names))
    for name, preset in PRESETS.items():
        counts = [updates_until_close(preset, seed) for seed in range(SEEDS)]
        medians = [statistics.median(column) for column in zip(*counts, strict=True)]
        print(f"{name:10}" + "".join(f"{median:15,}" for median in medians), flush=True)
    print("\nPer target against sequential, largest difference over 1,000 updates:")
    for name, preset in PRESETS.items():
        print(f"{name:10}{compare_with_sequential(preset, 1000)}", flush=True)
    print_surprise()


if __name__ == "__main__":
    main()
