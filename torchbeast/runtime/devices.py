"""Where networks run, and how tensors get there and back."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, NamedTuple

import torch


class Devices(NamedTuple):
    """The devices of a run; one GPU or the CPU may do both."""

    learner: torch.device
    inference: torch.device

    def __str__(self) -> str:
        if self.learner == self.inference:
            return f"learning and acting on {self.learner}"
        return f"learning on {self.learner}, acting on {self.inference}"


def choose_devices(disable_cuda: bool = False, index: int = 0, count: int = 1) -> Devices:
    """Chooses the first visible GPU to learn and the second to act; one GPU does both, else the
    CPU.

    ``CUDA_VISIBLE_DEVICES`` says which are visible.

    Args:
        disable_cuda: whether the CPU is used in any case.
        index: of this process among those of this machine that learn together. Each learns on a
            separate GPU while there are enough; they act on those that are left, else on the same.
        count: how many those are.
    """
    if disable_cuda or not torch.cuda.is_available():
        return Devices(torch.device("cpu"), torch.device("cpu"))
    gpus = torch.cuda.device_count()
    learner = index % gpus
    inference = index + count if index + count < gpus else learner
    return Devices(torch.device("cuda", learner), torch.device("cuda", inference))


class DeviceStream:
    """Copies one thread's tensors to a device and back. On the CPU nothing is copied.

    On a GPU the copies run on a separate CUDA stream, beside the kernels of other threads.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Makes a context in which kernels run on this stream, too."""
        if self._stream is None:
            return contextlib.nullcontext()
        return torch.cuda.stream(self._stream)

    def upload(self, tensors: Any) -> Any:
        """Copies nested tuples of tensors to the device.

        When it returns, the originals may be reused.
        """
        if self._stream is None:
            return tensors
        consumer = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            moved = _map(lambda t: t.to(self._device, non_blocking=True), tensors)
        # Whoever recycles a pinned buffer does not know about copies under way. Only this thread
        # waits: others compute meanwhile.
        self._stream.synchronize()
        if consumer != self._stream:
            # Freed memory must not serve the next upload while the consumer's kernels read it.
            _map(lambda t: t.record_stream(consumer), moved)
        return moved

    def download(self, tensors: Any) -> Any:
        """Copies nested tuples of tensors that this stream computes to the CPU.

        They are complete.
        """
        if self._stream is None:
            return tensors
        with torch.cuda.stream(self._stream):
            moved = _map(lambda t: t.to("cpu", non_blocking=True), tensors)
        self._stream.synchronize()
        return moved


def record_event(module: torch.nn.Module) -> torch.cuda.Event | None:
    """Records what this thread has asked the module's GPU for so far, to wait for.

    None on the CPU.
    """
    device = next(itertools.chain(module.parameters(), module.buffers())).device
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


def wait_event(event: torch.cuda.Event | None) -> None:
    """Makes what this thread asks its current stream for from now on wait for ``event``."""
    if event is not None:
        torch.cuda.current_stream().wait_event(event)


def _map(function: Any, tensors: Any) -> Any:
    if isinstance(tensors, torch.Tensor):
        return function(tensors)
    items = [_map(function, item) for item in tensors]
    return type(tensors)(*items) if hasattr(tensors, "_fields") else tuple(items)
