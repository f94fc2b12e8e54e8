"""RMSProp in one pass over memory, where this machine can do it."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from torchbeast.runtime import kernels


class RMSprop(torch.optim.RMSprop):
    """torch's RMSprop with a step of our own on CPUs with AVX-512.

    That step reads and writes memory once instead of six times. The result is the same up to
    rounding, and so is the state.
    """

    def step(self, closure: Any = None) -> Any:
        """Makes one step with the gradients of the parameters."""
        kernel = kernels.compiled()
        parameters = [p for group in self.param_groups for p in group["params"]]
        if kernel is None or not all(_is_supported(p) for p in parameters):
            return inspect.unwrap(torch.optim.RMSprop.step)(self, closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(kernel, parameter, parameter.grad, group)
        return None

    def _step(
        self, kernel: ModuleType, parameter: Tensor, gradient: Tensor, group: dict[str, Any]
    ) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["square_avg"] = torch.zeros_like(parameter)
            if group["momentum"] > 0:
                state["momentum_buffer"] = torch.zeros_like(parameter)
        state["step"] += 1
        for name in state.keys() - {"step"}:
            state[name] = _laid_out_as(parameter, state[name])
        momenta = state.get("momentum_buffer")
        kernel.step_rmsprop(
            _flat(parameter),
            _flat(_laid_out_as(parameter, gradient)),
            _flat(state["square_avg"]),
            None if momenta is None else _flat(momenta),
            group["lr"],
            group["alpha"],
            group["eps"],
            group["momentum"],
        )


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
