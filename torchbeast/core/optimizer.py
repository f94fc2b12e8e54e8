"""The optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchbeast.core.types import OptimizerConfig


class RMSprop(torch.optim.RMSprop):
    """torch's RMSProp without the guards that hide its methods from ``torch.compile``.

    Their first call imports ``torch._dynamo``. That takes two seconds at the start of a run and one
    at its end, and nothing here is compiled.
    """

    add_param_group = inspect.unwrap(torch.optim.RMSprop.add_param_group)
    state_dict = inspect.unwrap(torch.optim.RMSprop.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.RMSprop.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.RMSprop.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.RMSprop.step))


def make_optimizer(parameters: list[Any], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Makes the optimizer that ``config`` describes."""
    return RMSprop(
        parameters,
        lr=config.learning_rate,
        alpha=config.alpha,
        momentum=config.momentum,
        eps=config.epsilon,
    )


def check_optimizer_state(state: dict[str, Any], parameters: Sequence[Tensor]) -> None:
    """Checks that a state dict is one that :func:`load_optimizer_state` can load.

    Args:
        parameters: those that it should belong to, in their order.

    Raises:
        ValueError: it is not.
    """
    try:
        group = state["param_groups"][0]
        averages = state["state"]
        if group["params"] != list(range(len(parameters))) or not isinstance(averages, dict):
            raise ValueError("optimizer_state_dict is of another network")
        for index, values in averages.items():
            parameter = parameters[index]
            if not {"step", "square_avg"} <= values.keys():
                raise ValueError(
                    f"optimizer_state_dict lacks RMSProp's averages of parameter {index}"
                )
            for name, value in values.items():
                if name != "step" and value.shape != parameter.shape:
                    raise ValueError(f"optimizer_state_dict: {name} of {index} has another shape")
                if not torch.isfinite(torch.as_tensor(value)).all():
                    raise ValueError(f"optimizer_state_dict: {name} of {index} is not finite")
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError) as error:
        raise ValueError("optimizer_state_dict is not an optimizer's state") from error


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Restores an optimizer's state; its own options stay in effect."""
    optimizer.load_state_dict(state)
    # Else options of the state, such as alpha, would replace those asked for. The learning rate
    # follows from the schedule at every step.
    options = {k: v for k, v in optimizer.defaults.items() if k != "lr"}
    for group in optimizer.param_groups:
        group.update(options)
    if options["momentum"] > 0:
        for parameter, averages in optimizer.state.items():
            averages.setdefault("momentum_buffer", torch.zeros_like(parameter))
