"""The update rule: one optimizer step from the gradients of a batch, then PopArt's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core.popart import PopArtLayer


class OptimizerConfig(NamedTuple):
    """RMSProp as in IMPALA, or Adam; the learning rate falls linearly to 0 over ``total_steps``."""

    optimizer: str = "rmsprop"
    learning_rate: float = 0.00048
    alpha: float = 0.99
    momentum: float = 0.0
    epsilon: float = 0.01
    grad_norm_clipping: float = 40.0
    total_steps: int = 100000


class UpdateRule:
    """Changes the weights of an agent. Nothing here waits for the device."""

    def __init__(
        self, agent: Any, config: OptimizerConfig, on_gradients: Callable[[], None]
    ) -> None:
        """``on_gradients`` is called when the parameters of ``agent`` have their gradients."""
        self.parameters = [p for p in agent.parameters() if p.requires_grad]
        self._agent = agent
        self._config = config
        self._on_gradients = on_gradients
        self._optimizer = make_optimizer(self.parameters, config)

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Of ``loss`` with respect to ``parameters``."""
        return list(torch.autograd.grad(loss, self.parameters))

    def apply(
        self, gradients: list[Tensor], learning_rate: float, vs: Tensor, task: Tensor
    ) -> Tensor:
        """Makes one step.

        Args:
            gradients: of ``parameters``, in their order.
            learning_rate: of this step.
            vs: ``[T, B]``, value targets, which PopArt learns from.
            task: int64 ``[T, B]``, whose targets they are.

        Returns:
            The norm of the gradient before clipping, on the device.
        """
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._on_gradients()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self._config.grad_norm_clipping)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        popart = self._agent.baseline
        if isinstance(popart, PopArtLayer):
            one_hot = task.unsqueeze(-1) == torch.arange(len(popart.mu), device=task.device)
            popart.update_parameters(vs.unsqueeze(-1).expand(one_hot.shape), one_hot)
        return norm

    def learning_rate(self, steps: int) -> float:
        """Of a step after ``steps`` agent steps."""
        left = 1.0 - min(steps, self._config.total_steps) / self._config.total_steps
        return self._config.learning_rate * left

    def state_dict(self) -> dict[str, Any]:
        """A copy of the optimizer's state."""
        return copy.deepcopy(self._optimizer.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of state_dict."""
        self._optimizer.load_state_dict(state)


def make_optimizer(parameters: list[Any], config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer that ``config`` describes."""
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=config.learning_rate, eps=config.epsilon)
    return torch.optim.RMSprop(
        parameters,
        lr=config.learning_rate,
        alpha=config.alpha,
        momentum=config.momentum,
        eps=config.epsilon,
    )
