"""The learner of PolyBeast and MonoBeast: learns from rollouts and updates the weights.

A learner step, from top to bottom: :meth:`Learner.learn` computes losses and gradients of a part of
a batch, and adds them to those of the other threads' parts; whoever delivers the last part adds
those of the other ranks and calls :meth:`Learner._update`, which moves PopArt's statistics and the
weights. The losses are in :mod:`torchbeast.core.losses`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core.batch_gate import BatchGate
from torchbeast.core.losses import Losses, rollout_losses
from torchbeast.core.optimizer import load_optimizer_state, make_optimizer
from torchbeast.core.popart import Moments, PopArtLayer, TargetSums, add_sums
from torchbeast.core.stats import PartStats, StepStats, collect_part, join_parts, read_stats
from torchbeast.core.types import AgentOutput, EnvOutput, LossConfig, OptimizerConfig, RunError
from torchbeast.runtime.ranks import Ranks

# A run ends after so many updates in a row that are not finite.
MAX_SKIPPED_IN_A_ROW = 10


class Part(NamedTuple):
    """What is kept of a part of a batch, on the device."""

    gradients: list[Tensor]
    """The gradients of all parameters, in their order."""
    stats: PartStats
    target_sums: TargetSums | None
    """Sums of the value targets of each game; None without PopArt."""


def join(a: Part, b: Part) -> Part:
    """Joins two parts; the gradients of ``a`` are changed in place."""
    torch._foreach_add_(a.gradients, b.gradients)
    sums = None
    if a.target_sums is not None and b.target_sums is not None:
        sums = add_sums(a.target_sums, b.target_sums)
    return Part(a.gradients, join_parts(a.stats, b.stats), sums)


def sum_over_ranks(part: Part, ranks: Ranks, stop: bool) -> tuple[Part, bool]:
    """Adds up the batches of all ranks, in place. All get the same bits.

    Every rank must call it with a batch of as many rollouts, of the same agent. Returns the sum,
    and whether any rank wants to stop.
    """
    if ranks.count == 1:
        return part, stop
    stops = torch.tensor([float(stop)], dtype=torch.float64, device=part.stats.ends.device)
    *sums, ends = part.stats
    ranks.all_reduce([*part.gradients, *sums, *(part.target_sums or ()), stops])
    stats = PartStats._make([*sums, torch.cat(ranks.all_gather(ends), dim=1)])
    return part._replace(stats=stats), bool(stops.item())


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
            optimizer: the optimizer, and when its learning rate reaches 0.
            batch_size: rollouts in a batch of this process.
            on_step: is told about every step.
            on_gradients: is called when ``parameter.grad`` has the gradients of the batches of all
                ranks, before they are clipped.
            ranks: the processes that learn together, each from its own batch. Their agents must be
                equal. By default there is only this process.
        """
        self.agent = agent
        self.steps = 0
        self.learner_steps = 0
        self.task_steps = [0] * len(agent.config.tasks)
        self.skipped_updates = 0
        self._skipped_in_a_row = 0
        self._loss_config = loss
        self._optimizer_config = optimizer
        self._on_step = on_step
        self._on_gradients = on_gradients
        self._ranks = ranks or Ranks()
        self._stop_requested = False
        self.is_stopped = False
        """Whether a rank asked all ranks to stop, and all of them have made their last step."""
        self._parameters = [p for p in agent.parameters() if p.requires_grad]
        self._popart = agent.baseline if isinstance(agent.baseline, PopArtLayer) else None
        # Where weight and bias of PopArt's head are among the parameters.
        head = () if self._popart is None else (self._popart.weight, self._popart.bias)
        self._head = [
            next(i for i, p in enumerate(self._parameters) if p is parameter) for parameter in head
        ]
        self.optimizer = make_optimizer(self._parameters, optimizer)
        self._gate: BatchGate[Part] = BatchGate(batch_size, join)

    def learn(
        self,
        env: EnvOutput,
        actor: AgentOutput,
        initial_state: Any,
        policy_version: Tensor | None = None,
    ) -> None:
        """Learns from a part of a batch: rollouts, leaves ``[T + 1, B, ...]``; thread-safe.

        Every call has as many rollouts, a divisor of the number in a batch. Blocks while other
        threads learn from a whole batch.

        Args:
            actor: what the policy that acted computed.
            initial_state: the recurrent state before the first row.
            policy_version: int ``[T + 1, B]``, the learner step whose weights acted, if known.

        Raises:
            LearnerClosed: all steps are done, the learner was closed, or another thread failed.
            RunError: training has diverged.
        """
        num_rollouts, num_tasks = env.done.shape[1], len(self.task_steps)
        with self._gate.part(num_rollouts):  # Nobody changes the weights here.
            losses = rollout_losses(self.agent, env, actor, initial_state, self._loss_config)
            part = Part(
                self._gradients(losses),
                collect_part(losses, env, policy_version, self.learner_steps, num_tasks),
                losses.target_sums,
            )
            batch = self._gate.deliver(part, num_rollouts)
            if batch is None:  # Another thread delivers the last part and makes the update.
                return
            # Without the lock: it may take long, and the run can be saved meanwhile.
            batch, is_last = sum_over_ranks(batch, self._ranks, self._stop_requested)
            with self._gate.update():  # Nobody else is inside.
                self._update(batch)
                self.is_stopped = is_last
                if self.is_over:
                    self._gate.close()

    def _gradients(self, losses: Losses) -> list[Tensor]:
        """Computes the gradients of a part: those of all parameters, in their order.

        With PopArt they are with respect to the head that is rescaled to the statistics of the
        loss: with a step per target those that contain the targets of this part. Where all rollouts
        of a game are in one part, as on a GPU, that is the published rule (van Hasselt et al.
        2016). Otherwise a part does not know the other parts' targets: waiting for them would keep
        the activations of the whole batch in memory.
        """
        # A parameter that the loss does not use, as in a custom agent, has the gradient 0.
        gradients = _unshare(
            torch.autograd.grad(losses.total, self._parameters, materialize_grads=True)
        )
        popart, moments = self._popart, losses.moments
        if popart is not None and moments is not None:
            weight, bias = (gradients[i] for i in self._head)
            popart.rescale_gradients(weight, bias, moments)
        return gradients

    def _update(self, batch: Part) -> None:
        """Makes a step from a whole batch of all ranks, if it is finite, and tells about it."""
        moved = None
        if self._popart is not None and batch.target_sums is not None:
            moved = self._popart.moved(batch.target_sums)
        norm = torch.nn.utils.get_total_norm(batch.gradients)
        stats = read_stats(batch.stats, norm, self._loss_config)  # Waits for the device.
        optimizer = self._optimizer_config
        learning_rate = optimizer.learning_rate * (1.0 - self.steps / optimizer.total_steps)
        fault = None
        # A gradient that is not finite would spread to all weights: all are clipped together.
        if math.isfinite(stats.total_loss) and math.isfinite(stats.grad_norm):
            self._apply(batch.gradients, norm, moved, learning_rate)
        else:
            fault = f"loss {stats.total_loss:g}, norm of the gradient {stats.grad_norm:g}"
        self.task_steps = [a + b for a, b in zip(self.task_steps, stats.task_steps, strict=True)]
        self.steps += sum(stats.task_steps)
        self.learner_steps += 1
        self._count_skipped(fault)
        # Called here because no thread changes the weights now.
        self._on_step(
            replace(
                stats,
                steps=self.steps,
                learner_steps=self.learner_steps,
                learning_rate=learning_rate,
                skipped_updates=self.skipped_updates,
                fault=fault,
            )
        )

    def _apply(
        self, gradients: list[Tensor], norm: Tensor, moved: Moments | None, learning_rate: float
    ) -> None:
        """Moves all weights, and PopArt's statistics with its head.

        The head is rescaled first if the gradients are those of the rescaled head; otherwise, as in
        2019, the optimizer is first.
        """
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._on_gradients()
        torch.nn.utils.clip_grads_with_norm_(
            self._parameters, self._optimizer_config.grad_norm_clipping, norm
        )
        popart = self._popart
        if popart is not None and moved is not None and popart.moves_first:
            popart.adopt(moved)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if popart is not None and moved is not None and not popart.moves_first:
            popart.adopt(moved)

    def _count_skipped(self, fault: str | None) -> None:
        """Counts an update that was skipped, if there is a fault. Raises RunError if training has
        diverged.
        """
        if fault is None:
            self._skipped_in_a_row = 0
            return
        self.skipped_updates += 1
        self._skipped_in_a_row += 1
        if self.is_diverged:
            raise RunError(
                f"training diverged: {self._skipped_in_a_row} updates in a row were not finite, "
                f"the last at step {self.steps:,} ({fault}); a lower --learning_rate may help"
            )
        self.check_weights()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to learn: all steps are done, or a rank stopped the run."""
        return self.is_stopped or self.steps >= self._optimizer_config.total_steps

    def request_stop(self) -> None:
        """Makes all ranks stop after the same step, the next one that they make together."""
        self._stop_requested = True

    def close(self) -> None:
        """Wakes the threads that wait in :meth:`learn`. Their rollouts are not used."""
        self._gate.close()

    @property
    def is_diverged(self) -> bool:
        """Whether the run ends because its updates are not finite; the weights are worthless."""
        return self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW

    def check_weights(self) -> None:
        """Raises RunError if a weight is not finite: no further update can mend that."""
        faulty = find_not_finite(self.agent.state_dict())
        if faulty:
            raise RunError(
                f"training diverged: {faulty[0]} is not finite at step {self.steps:,}; a lower "
                "--learning_rate may help"
            )

    def without_update(self) -> AbstractContextManager[Any]:
        """Makes a context in which weights, statistics and counts stay as they are."""
        return self._gate.without_update()

    def state_dict(self) -> dict[str, Any]:
        """Returns all that is needed to resume, as tensors and plain values."""
        with self._gate.without_update():
            state = copy.deepcopy(self.optimizer.state_dict())
            return {**self.agent_state(), "optimizer_state_dict": state}

    def agent_state(self) -> dict[str, Any]:
        """Returns the same without the optimizer: all that is needed to play."""
        with self._gate.without_update():
            weights = {k: v.cpu().clone() for k, v in self.agent.state_dict().items()}
            return {
                "agent": dict(self.agent.config._asdict()),
                "model_state_dict": weights,
                "steps": self.steps,
                "learner_steps": self.learner_steps,
                "task_steps": list(self.task_steps),
                "skipped_updates": self.skipped_updates,
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what state_dict returned, of an agent of the same configuration."""
        self.agent.load_state_dict(state["model_state_dict"])
        load_optimizer_state(self.optimizer, state["optimizer_state_dict"])
        self.steps = state["steps"]
        self.learner_steps = state["learner_steps"]
        self.task_steps = list(state["task_steps"])
        self.skipped_updates = state.get("skipped_updates", 0)
        if self.is_over:
            self._gate.close()


def _unshare(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Returns gradients that share no memory, because they are changed in place: autograd returns
    one tensor for two parameters that are only added together.
    """
    own: list[Tensor] = []
    seen: set[int] = set()
    for gradient in gradients:
        is_shared = gradient.data_ptr() in seen or 0 in gradient.stride()
        seen.add(gradient.data_ptr())
        own.append(gradient.clone() if is_shared else gradient)
    return own


def find_not_finite(tensors: Mapping[str, Any]) -> list[str]:
    """Finds the names of the tensors, or numbers, that are not finite everywhere."""
    return [
        name for name, value in tensors.items() if not torch.isfinite(torch.as_tensor(value)).all()
    ]


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
