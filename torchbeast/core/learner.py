"""The learner of PolyBeast and MonoBeast: learns from rollouts and updates the weights.

Several threads may call :meth:`Learner.learn`, each with a part of a batch
(:mod:`torchbeast.core.batch_gate`). The gradients of the parts are added, because a loss is a sum
over steps. With PopArt each part is normalised by itself: see
:class:`torchbeast.core.update.UpdateRule`. The thread that delivers the last part of a batch adds
the gradients of the other ranks (:mod:`torchbeast.core.distributed`) and updates the weights
(:mod:`torchbeast.core.update`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core.batch_gate import BatchGate
from torchbeast.core.distributed import Ranks
from torchbeast.core.divergence import SkippedUpdates, find_not_finite
from torchbeast.core.losses import LossConfig, rollout_losses
from torchbeast.core.optimizer import OptimizerConfig
from torchbeast.core.popart import TargetSums, add_sums
from torchbeast.core.stats import PartStats, StepStats, collect_part, join_parts, read_stats
from torchbeast.core.types import AgentOutput, EnvOutput, RunError
from torchbeast.core.update import UpdateRule


class Part(NamedTuple):
    """What is kept of a part of a batch, on the device."""

    gradients: list[Tensor]
    """Of all parameters, in their order."""
    stats: PartStats
    targets: TargetSums | None
    """With PopArt."""


def join(a: Part, b: Part) -> Part:
    """Joins two parts; the gradients of ``a`` are changed in place."""
    torch._foreach_add_(a.gradients, b.gradients)
    targets = None
    if a.targets is not None and b.targets is not None:
        targets = add_sums(a.targets, b.targets)
    return Part(a.gradients, join_parts(a.stats, b.stats), targets)


def sum_over_ranks(part: Part, ranks: Ranks, flag: bool) -> tuple[Part, bool]:
    """Adds up the batches of all ranks. Returns also whether any rank raised its flag.

    Every rank must call it with a batch of as many rollouts, of the same agent. All get the same
    bits.

    Args:
        part: this rank's batch. Its tensors are changed in place.
        ranks: of the run.
        flag: this rank's.
    """
    if ranks.count == 1:
        return part, flag
    stats = part.stats
    flags = torch.tensor([float(flag)], dtype=torch.float64, device=stats.sums.device)
    ranks.sum_([*part.gradients, stats.sums, *(part.targets or ()), flags])
    stats = stats._replace(rows=torch.cat(ranks.gather(stats.rows), dim=1))
    return part._replace(stats=stats), bool(flags.item())


class Learner:
    """Owns the weights, the optimizer and all that must be saved to resume."""

    def __init__(
        self,
        agent: Any,
        loss: LossConfig,
        optimizer: OptimizerConfig,
        batch_size: int,
        on_step: Callable[[StepStats], None],
        on_gradients: Callable[[], None] = lambda: None,
        ranks: Ranks | None = None,
    ) -> None:
        """Makes a learner at step 0.

        Args:
            agent: on the learner's device.
            loss: the loss terms.
            optimizer: the optimizer, and when its learning rate reaches 0.
            batch_size: rollouts in a batch of this process.
            on_step: is told about every step.
            on_gradients: is called before gradients are applied.
            ranks: the processes that learn together, each from its own batch. Their agents must be
                equal. By default there is only this process.
        """
        self.agent = agent
        self.steps = 0
        self.learner_steps = 0
        num_tasks = len(agent.config.tasks)
        self.task_steps = [0] * num_tasks
        self._loss_config = loss
        self._skipped = SkippedUpdates()
        self._total_steps = optimizer.total_steps
        self._on_step = on_step
        self._rule = UpdateRule(agent, optimizer, on_gradients)
        self._ranks = ranks or Ranks()
        self._stop_requested = False
        self._is_last = False
        self.is_stopped = False
        """Whether a rank asked all ranks to stop, and all of them have made their last step."""
        self._gate: BatchGate[Part] = BatchGate(
            batch_size, join, self._share, self._update, lambda: self.is_over
        )

    def learn(
        self,
        env: EnvOutput,
        actor: AgentOutput,
        initial_state: Any,
        policy_version: Tensor | None = None,
    ) -> None:
        """Learns from rollouts, leaves ``[T + 1, B, ...]``; thread-safe.

        Blocks while other threads learn from a whole batch.

        Args:
            env: what the environments returned.
            actor: what the policy that acted computed.
            initial_state: the recurrent state before the first row.
            policy_version: int ``[T + 1, B]``, the learner step whose weights acted, if known.

        Raises:
            LearnerClosed: all steps are done, or the learner was closed.
            RunError: training has diverged.
            RuntimeError: another thread failed.
        """
        num_rollouts = env.done.shape[1]
        with self._gate.part(num_rollouts):
            losses = rollout_losses(self.agent, env, actor, initial_state, self._loss_config)
            gradients = self._rule.gradients(losses)
            stats = collect_part(
                losses, env, policy_version, self.learner_steps, len(self.task_steps)
            )
            self._gate.deliver(Part(gradients, stats, losses.targets), num_rollouts)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to learn: all steps are done, or a rank stopped the run."""
        return self.is_stopped or self.steps >= self._total_steps

    def request_stop(self) -> None:
        """Makes all ranks stop after the same step, the next one that they make together."""
        self._stop_requested = True

    def close(self) -> None:
        """Wakes the threads that wait in :meth:`learn`. Their rollouts are not used."""
        self._gate.close()

    @property
    def is_diverged(self) -> bool:
        """Whether the run ends because its updates are not finite; the weights are worthless."""
        return self._skipped.is_diverged

    def check_weights(self) -> None:
        """Raises RunError if a weight is not finite: no further update can mend that."""
        faulty = find_not_finite(self.agent.state_dict())
        if faulty:
            raise RunError(
                f"training diverged: {faulty[0]} is not finite at step {self.steps:,}; a lower "
                "--learning_rate may help"
            )

    def _share(self, batch: Part) -> Part:
        """The batches of all ranks together."""
        batch, self._is_last = sum_over_ranks(batch, self._ranks, self._stop_requested)
        return batch

    def _update(self, batch: Part) -> None:
        learning_rate = self._rule.learning_rate(self.steps)
        norm = self._rule.prepare(batch.gradients, batch.targets)
        stats = read_stats(batch.stats, norm)
        # A gradient that is not finite would spread to all weights: all are clipped together.
        fault = None
        if math.isfinite(stats.total_loss) and math.isfinite(stats.grad_norm):
            self._rule.apply(learning_rate)
        else:
            fault = f"loss {stats.total_loss:g}, norm of the gradient {stats.grad_norm:g}"
        self.task_steps = [a + b for a, b in zip(self.task_steps, stats.task_steps, strict=True)]
        self.steps += sum(stats.task_steps)
        self.learner_steps += 1
        self._skipped.record(fault, self.steps)
        if fault is not None:
            self.check_weights()
        # Called here because no thread changes the weights now.
        self._on_step(
            StepStats(
                steps=self.steps,
                learner_steps=self.learner_steps,
                learning_rate=learning_rate,
                skipped_updates=self._skipped.total,
                fault=fault,
                **vars(stats),
            )
        )
        self.is_stopped = self._is_last

    def between_batches(self) -> AbstractContextManager[None]:
        """Makes a context in which no batch is being learned from."""
        return self._gate.between_batches()

    def state_dict(self) -> dict[str, Any]:
        """Returns all that is needed to resume, as tensors and plain values."""
        with self._gate.between_batches():
            return {**self.agent_state(), "optimizer_state_dict": self._rule.state_dict()}

    def agent_state(self) -> dict[str, Any]:
        """Returns the same without the optimizer: all that is needed to play."""
        with self._gate.between_batches():
            return {
                "agent": dict(self.agent.config._asdict()),
                "model_state_dict": {
                    k: v.cpu().clone() for k, v in self.agent.state_dict().items()
                },
                "steps": self.steps,
                "learner_steps": self.learner_steps,
                "task_steps": list(self.task_steps),
                "skipped_updates": self._skipped.total,
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what state_dict returned, of an agent of the same configuration."""
        self.agent.load_state_dict(state["model_state_dict"])
        self._rule.load_state_dict(state["optimizer_state_dict"])
        self.steps = state["steps"]
        self.learner_steps = state["learner_steps"]
        self.task_steps = list(state["task_steps"])
        self._skipped.total = state.get("skipped_updates", 0)


def rollouts_at_once(
    batch_size: int,
    unroll_length: int,
    threads: int,
    rows_at_once: int | None,
) -> int:
    """Returns how many rollouts each learner thread takes at a time: a divisor of ``batch_size``.

    ``rows_at_once``: the agent's attribute of this name, for a CPU. None for a GPU, which is
    fastest with whole batches.
    """
    if rows_at_once is None:
        return batch_size
    most = min(batch_size // threads, rows_at_once // unroll_length)
    return max(n for n in range(1, max(1, most) + 1) if batch_size % n == 0)
