"""The update rule: one step of the optimizer and of PopArt from the gradients of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchbeast.core.losses import Losses
from torchbeast.core.optimizer import OptimizerConfig, make_optimizer
from torchbeast.core.popart import Moments, PopArtLayer, TargetSums


class UpdateRule:
    """Changes the weights of an agent, in two steps that do not wait for the device.

    :meth:`prepare` takes the gradients of a batch and returns their norm, :meth:`apply` changes
    the weights. Until :meth:`apply` is called the weights are unchanged, so a caller can leave out
    a step whose norm is not finite.

    With PopArt and a step per target, as van Hasselt et al. publish it: the losses are normalised
    by statistics that contain their targets, the head is rescaled to the new statistics, and the
    step is made from the gradient with respect to the rescaled head.

    A batch may be learned from in parts. Then the losses of each part are normalised, and its
    gradient is that with respect to the head rescaled, by statistics that contain the targets of
    this part. Where all rollouts of a game are in one part, as on a
    GPU, this is the published rule. Otherwise a part does not know the other parts' targets of the
    same game. Waiting for them would keep the activations of the whole batch in memory. The
    statistics after the step contain all targets of the batch in either case.

    With PopArt and a step per batch, as in 2019, the optimizer makes its step first. Statistics and
    head change after it.
    """

    def __init__(
        self, agent: Any, config: OptimizerConfig, on_gradients: Callable[[], None]
    ) -> None:
        """``on_gradients`` is called when the parameters of ``agent`` have their gradients."""
        self._agent = agent
        self._parameters = [p for p in agent.parameters() if p.requires_grad]
        self._popart = agent.baseline if isinstance(agent.baseline, PopArtLayer) else None
        self._config = config
        self._on_gradients = on_gradients
        self._optimizer = make_optimizer(self._parameters, config)
        self._norm: Tensor | None = None
        self._moved: Moments | None = None

    def gradients(self, losses: Losses) -> list[Tensor]:
        """Computes the gradients of the sum of ``losses``, of a part of a batch: those of all
        parameters, in their order.
        """
        # A parameter that the loss does not use, as in a custom agent, has the gradient 0.
        gradients = list(
            torch.autograd.grad(losses.total, self._parameters, materialize_grads=True)
        )
        if self._popart is not None and self._popart.beta_per == "target":
            assert losses.targets is not None
            self._rescale_head(gradients, self._popart.moved(losses.targets))
        return gradients

    def prepare(self, gradients: list[Tensor], targets: TargetSums | None) -> Tensor:
        """Takes the gradients of the next step.

        Args:
            gradients: of a whole batch. They are changed in place by :meth:`apply`.
            targets: sums of the batch's value targets, with PopArt.

        Returns:
            Their norm before clipping, on the device.
        """
        self._moved = None
        if self._popart is not None and targets is not None:
            self._moved = self._popart.moved(targets)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._norm = torch.nn.utils.get_total_norm(gradients)
        return self._norm

    def apply(self, learning_rate: float) -> None:
        """Makes one step with the gradients that were prepared."""
        assert self._norm is not None
        self._on_gradients()
        torch.nn.utils.clip_grads_with_norm_(
            self._parameters, self._config.grad_norm_clipping, self._norm
        )
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        follows = self._popart is not None and self._popart.beta_per == "batch"
        if not follows:
            self._adopt_statistics()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if follows:
            self._adopt_statistics()

    def _rescale_head(self, gradients: list[Tensor], new: Moments) -> None:
        """Changes ``gradients`` to those with respect to the head that fits ``new``."""
        assert self._popart is not None
        head = (self._popart.weight, self._popart.bias)
        weight, bias = (next(i for i, p in enumerate(self._parameters) if p is q) for q in head)
        self._popart.rescale_gradients(gradients[weight], gradients[bias], new)

    def _adopt_statistics(self) -> None:
        """Moves PopArt's statistics and head."""
        if self._popart is not None and self._moved is not None:
            self._popart.adopt(self._moved)

    def learning_rate(self, steps: int) -> float:
        """Returns the learning rate of a step after ``steps`` agent steps."""
        left = 1.0 - min(steps, self._config.total_steps) / self._config.total_steps
        return self._config.learning_rate * left

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of the optimizer's state."""
        return copy.deepcopy(self._optimizer.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what state_dict returned; the configuration's options take effect."""
        self._optimizer.load_state_dict(state)
        # Else options of the state, such as alpha, would replace those asked for. The learning rate
        # follows from the schedule at every step.
        options = {k: v for k, v in self._optimizer.defaults.items() if k != "lr"}
        for group in self._optimizer.param_groups:
            group.update(options)
        if self._config.momentum > 0:
            for parameter, averages in self._optimizer.state.items():
                averages.setdefault("momentum_buffer", torch.zeros_like(parameter))
