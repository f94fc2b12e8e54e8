"""Optimizers and the learning rate schedule; RMSProp in one pass over memory where possible."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.runtime import kernels


class FusedRMSprop(torch.optim.RMSprop):
    """torch's RMSprop with a step of our own on CPUs with AVX-512.

    That step reads and writes memory once instead of six times. The result is the same up to
    rounding, and so is the state.
    """

    def step(self, closure: Any = None) -> Any:
        """Makes one step with the gradients of the parameters."""
        kernel = kernels.compiled()
        parameters = [p for group in self.param_groups for p in group["params"]]
        if kernel is None or not any(_is_supported(p) for p in parameters):
            return inspect.unwrap(torch.optim.RMSprop.step)(self, closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                averages = self._averages(parameter, group)
                averages["step"] += 1
                if _is_supported(parameter):
                    _step_by_kernel(kernel, parameter, averages, group)
                else:
                    _step_by_torch(parameter, averages, group)
        return None

    def _averages(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state of a parameter, laid out in memory as the parameter is."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["square_avg"] = torch.zeros_like(parameter)
            if group["momentum"] > 0:
                state["momentum_buffer"] = torch.zeros_like(parameter)
        for name in state.keys() - {"step"}:
            state[name] = _laid_out_as(parameter, state[name])
        return state


def _step_by_kernel(
    kernel: ModuleType, parameter: Tensor, averages: dict[str, Tensor], group: dict[str, Any]
) -> None:
    assert parameter.grad is not None
    momenta = averages.get("momentum_buffer")
    kernel.step_rmsprop(
        _flat(parameter),
        _flat(_laid_out_as(parameter, parameter.grad)),
        _flat(averages["square_avg"]),
        None if momenta is None else _flat(momenta),
        group["lr"],
        group["alpha"],
        group["eps"],
        group["momentum"],
    )


def _step_by_torch(parameter: Tensor, averages: dict[str, Tensor], group: dict[str, Any]) -> None:
    """The same step of a parameter of another type: PopArt's head is float64."""
    gradient, square_average = parameter.grad, averages["square_avg"]
    assert gradient is not None
    square_average.mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
    step = gradient / square_average.sqrt().add_(group["eps"])
    if "momentum_buffer" in averages:
        step = averages["momentum_buffer"].mul_(group["momentum"]).add_(step)
    parameter.add_(step, alpha=-group["lr"])


def _is_supported(parameter: Tensor) -> bool:
    return (
        parameter.device.type == "cpu"
        and parameter.dtype == torch.float32
        and _is_dense(parameter)
        and (parameter.grad is None or parameter.grad.dtype == torch.float32)
    )


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


def _laid_out_as(parameter: Tensor, x: Tensor) -> Tensor:
    """``x`` itself if it lies in memory as ``parameter`` does, else a copy that does."""
    if x.stride() == parameter.stride():
        return x
    return torch.empty_like(parameter).copy_(x)


def _flat(x: Tensor) -> Tensor:
    """The numbers of a dense tensor in the order of memory."""
    return x.detach().as_strided((x.numel(),), (1,))


class OptimizerConfig(NamedTuple):
    """RMSProp as in IMPALA, or Adam; the learning rate falls linearly to 0 over ``total_steps``."""

    optimizer: str = "rmsprop"
    learning_rate: float = 0.00048
    alpha: float = 0.99
    momentum: float = 0.0
    epsilon: float = 0.01
    grad_norm_clipping: float = 40.0
    total_steps: int = 3_000_000


def _without_compiler(optimizer: type[torch.optim.Optimizer]) -> Any:
    """The same optimizer without the guards that hide its methods from ``torch.compile``.

    Their first call imports ``torch._dynamo``. That takes two seconds at the start of a run and one
    at its end, and nothing here is compiled.
    """
    guarded = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in guarded}
    methods["step"] = torch.no_grad()(inspect.unwrap(optimizer.step))
    return type(optimizer.__name__, (optimizer,), methods)


Adam = _without_compiler(torch.optim.Adam)
RMSprop = _without_compiler(FusedRMSprop)


def make_optimizer(parameters: list[Any], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Makes the optimizer that ``config`` describes."""
    if config.optimizer == "adam":
        return Adam(parameters, lr=config.learning_rate, eps=config.epsilon)
    return RMSprop(
        parameters,
        lr=config.learning_rate,
        alpha=config.alpha,
        momentum=config.momentum,
        eps=config.epsilon,
    )


def optimizer_kind(state: dict[str, Any]) -> str:
    """Returns whose state a state dict is: ``rmsprop`` or ``adam``."""
    return "adam" if "betas" in state["param_groups"][0] else "rmsprop"


def check_optimizer_state(state: dict[str, Any], parameters: Sequence[Tensor]) -> None:
    """Checks that a state dict is one that :meth:`UpdateRule.load_state_dict` can load.

    Args:
        state: any object.
        parameters: those that it should belong to, in their order.

    Raises:
        ValueError: it is not.
    """
    try:
        group = state["param_groups"][0]
        averages = state["state"]
        expected = {"rmsprop": {"square_avg"}, "adam": {"exp_avg", "exp_avg_sq"}}
        names = expected[optimizer_kind(state)]
        if group["params"] != list(range(len(parameters))) or not isinstance(averages, dict):
            raise ValueError("optimizer_state_dict is of another network")
        for index, values in averages.items():
            parameter = parameters[index]
            if not {"step", *names} <= values.keys():
                raise ValueError(f"optimizer_state_dict lacks averages of parameter {index}")
            for name, value in values.items():
                if name != "step" and value.shape != parameter.shape:
                    raise ValueError(f"optimizer_state_dict: {name} of {index} has another shape")
                if not torch.isfinite(torch.as_tensor(value)).all():
                    raise ValueError(f"optimizer_state_dict: {name} of {index} is not finite")
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError) as error:
        raise ValueError("optimizer_state_dict is not an optimizer's state") from error
