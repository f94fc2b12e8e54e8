"""The learner: rollouts in, better weights out. The same one for PolyBeast and MonoBeast.

Several threads may call :meth:`Learner.learn` with a part of a batch each. Gradients of the parts
are summed, which for summed losses is exact; when the parts of a whole batch are together, the last
thread applies them. No part of the next batch starts before that.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core.losses import LossConfig, Losses, rollout_losses
from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import AgentOutput, EnvOutput


class OptimizerConfig(NamedTuple):
    """RMSProp as in IMPALA, or Adam; the learning rate falls linearly to 0 over ``total_steps``."""

    optimizer: str = "rmsprop"
    learning_rate: float = 0.00048
    alpha: float = 0.99
    momentum: float = 0.0
    epsilon: float = 0.01
    grad_norm_clipping: float = 40.0
    total_steps: int = 100000


class Game(NamedTuple):
    """A full game that ended in a rollout."""

    task: int
    episode_return: float
    episode_step: int


class StepStats(NamedTuple):
    """One learner step."""

    steps: int  # Agent steps learned from so far.
    learner_steps: int
    total_loss: float
    pg_loss: float
    baseline_loss: float
    entropy_loss: float
    grad_norm: float
    learning_rate: float
    policy_lag: float  # Learner steps between the weights that acted and those that learned; mean.
    games: list[Game]
    task_steps: list[int]  # Agent steps in this batch, by task.


class Part(NamedTuple):
    """What is kept of a part of a batch."""

    losses: Losses
    games: list[Game]
    num_rollouts: int
    lag: float


class LearnerClosed(Exception):  # noqa: N818
    """There is nothing more to learn: the steps are done, or the learner was closed."""


class Learner:
    """Owns the weights, the optimizer and all that must be saved to go on."""

    def __init__(
        self,
        agent: Any,
        loss: LossConfig,
        optimizer: OptimizerConfig,
        batch_size: int,
        on_step: Callable[[StepStats], None],
        on_gradients: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_step`` is told about every step, ``on_gradients`` before gradients are applied."""
        self.agent = agent
        self.steps = 0
        self.learner_steps = 0
        num_tasks = len(agent.config.tasks)
        self.task_steps = [0] * num_tasks
        self._loss_config = loss
        self._config = optimizer
        self._batch_size = batch_size
        self._on_step = on_step
        self._on_gradients = on_gradients
        self._parameters = [p for p in agent.parameters() if p.requires_grad]
        self._optimizer = make_optimizer(self._parameters, optimizer)

        self._turn = threading.Condition()
        self._taken = 0  # Rollouts of the current batch handed to threads.
        self._parts: list[Part] = []  # Of the current batch, those whose gradients are in.
        self._gradients: list[Tensor] | None = None
        self._failed: BaseException | None = None
        self._closed = False

    def learn(
        self,
        env: EnvOutput,
        actor: AgentOutput,
        initial_state: Any,
        policy_version: Tensor | None = None,
    ) -> None:
        """Learns from rollouts, leaves ``[T + 1, B, ...]``; thread-safe.

        ``policy_version``: int ``[T + 1, B]``, the learner step whose weights acted, if known.

        Waits for its turn if a whole batch is being learned from already. Raises LearnerClosed, or
        RuntimeError if another thread failed.
        """
        num_rollouts = env.done.shape[1]
        self._begin(num_rollouts)
        try:
            losses = rollout_losses(self.agent, env, actor, initial_state, self._loss_config)
            gradients = torch.autograd.grad(losses.total, self._parameters)
            games = finished_games(env)
            lag = 0.0
            if policy_version is not None:
                lag = self.learner_steps - float(policy_version[1:].float().mean())
            self._finish(
                Part(losses._replace(total=losses.total.detach()), games, num_rollouts, lag),
                gradients,
            )
        except BaseException as error:
            with self._turn:
                self._failed = error
                self._turn.notify_all()
            raise

    def close(self) -> None:
        """Wakes threads that wait for their turn; what they have is not learned from."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def _begin(self, num_rollouts: int) -> None:
        with self._turn:
            while self._taken >= self._batch_size and not self._closed and not self._failed:
                self._turn.wait()
            if self._failed:
                raise RuntimeError("another learner thread failed") from self._failed
            if self._closed or self.steps >= self._config.total_steps:
                raise LearnerClosed
            self._taken += num_rollouts

    def _finish(self, part: Part, gradients: tuple[Tensor, ...]) -> None:
        with self._turn:
            if self._gradients is None:
                self._gradients = list(gradients)
            else:
                torch._foreach_add_(self._gradients, list(gradients))
            self._parts.append(part)
            if sum(p.num_rollouts for p in self._parts) < self._batch_size:
                return
            # Told about while the weights stand still.
            self._on_step(self._apply(self._gradients, self._parts))
            self._taken, self._gradients, self._parts = 0, None, []
            self._turn.notify_all()

    def _apply(self, gradients: list[Tensor], parts: list[Part]) -> StepStats:
        """One optimizer step from the summed gradients, then PopArt's."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._on_gradients()
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._config.grad_norm_clipping)
        learning_rate = self.learning_rate()
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

        task = torch.cat([part.losses.task for part in parts], dim=1)
        if isinstance(self.agent.baseline, PopArtLayer):
            vs = torch.cat([part.losses.vs for part in parts], dim=1)
            one_hot = torch.nn.functional.one_hot(task, len(self.task_steps))
            self.agent.baseline.update_parameters(vs.unsqueeze(-1).expand(one_hot.shape), one_hot)

        counts = torch.bincount(task.flatten(), minlength=len(self.task_steps)).tolist()
        self.task_steps = [a + b for a, b in zip(self.task_steps, counts, strict=True)]
        self.steps += task.numel()
        self.learner_steps += 1

        def total(name: str) -> float:
            return sum(float(getattr(part.losses, name)) for part in parts)

        num_rollouts = sum(part.num_rollouts for part in parts)
        return StepStats(
            steps=self.steps,
            learner_steps=self.learner_steps,
            total_loss=total("total"),
            pg_loss=total("policy_gradient"),
            baseline_loss=total("baseline"),
            entropy_loss=total("entropy"),
            grad_norm=float(norm),
            learning_rate=learning_rate,
            policy_lag=sum(part.lag * part.num_rollouts for part in parts) / num_rollouts,
            games=[game for part in parts for game in part.games],
            task_steps=counts,
        )

    def learning_rate(self) -> float:
        """Of the next step."""
        left = 1.0 - min(self.steps, self._config.total_steps) / self._config.total_steps
        return self._config.learning_rate * left

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on, as tensors and plain values. Between steps only."""
        with self._turn:
            return {
                "agent": dict(self.agent.config._asdict()),
                "model_state_dict": {
                    k: v.cpu().clone() for k, v in self.agent.state_dict().items()
                },
                # A copy: the optimizer's own tensors go on changing.
                "optimizer_state_dict": copy.deepcopy(self._optimizer.state_dict()),
                "steps": self.steps,
                "learner_steps": self.learner_steps,
                "task_steps": list(self.task_steps),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of state_dict, for an agent of the same configuration."""
        self.agent.load_state_dict(state["model_state_dict"])
        self._optimizer.load_state_dict(state["optimizer_state_dict"])
        self.steps = state["steps"]
        self.learner_steps = state["learner_steps"]
        self.task_steps = list(state["task_steps"])


def make_optimizer(parameters: list[Any], config: OptimizerConfig) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=config.learning_rate, eps=config.epsilon)
    return torch.optim.RMSprop(
        parameters,
        lr=config.learning_rate,
        alpha=config.alpha,
        momentum=config.momentum,
        eps=config.epsilon,
    )


def rollouts_at_once(
    batch_size: int, unroll_length: int, threads: int, rows_at_once: int | None
) -> int:
    """How many rollouts each learner thread takes at a time: a divisor of ``batch_size``.

    ``rows_at_once``: of the agent on a CPU; None on a GPU, which wants whole batches.
    """
    if rows_at_once is None:
        return batch_size
    most = min(batch_size // threads, rows_at_once // unroll_length)
    return max(n for n in range(1, max(1, most) + 1) if batch_size % n == 0)


def finished_games(env: EnvOutput) -> list[Game]:
    """The full games that ended in a rollout; its first row belongs to the one before."""
    over = env.game_over[1:]
    if not bool(over.any()):
        return []
    columns = (x[1:][over].tolist() for x in (env.task, env.episode_return, env.episode_step))
    return [Game(*values) for values in zip(*columns, strict=True)]
