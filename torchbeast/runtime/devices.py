"""Where networks run, and how tensors get there and back.

GPUs are those that PyTorch calls ``cuda``: NVIDIA's, and AMD's with ROCm. Apple's ``mps`` and some
of Intel's have no float64, which statistics need.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from torchbeast.core.types import UsageError

log = logging.getLogger("torchbeast")

# What NVIDIA's driver makes on Linux.
NVIDIA = "/dev/nvidiactl"


class Devices(NamedTuple):
    """The devices of a run; one GPU or the CPU may do both."""

    learner: torch.device
    inference: torch.device

    def __str__(self) -> str:
        if self.learner == self.inference:
            return f"learning and acting on {self.learner}"
        return f"learning on {self.learner}, acting on {self.inference}"


def choose_devices(disable_cuda: bool = False, index: int = 0, count: int = 1) -> Devices:
    """Chooses the first GPU that ``CUDA_VISIBLE_DEVICES`` shows to learn, and the second to act.

    A GPU of another model does not act: it may be much slower, or lack bfloat16. Then, as with one
    GPU, the first does both. Without a GPU the CPU does.

    Args:
        disable_cuda: whether the CPU is used in any case.
        index: of this process among those of this machine that learn together. Each learns on a
            separate GPU, and acts on one that is left, else on the same.
        count: of these processes.

    Raises:
        UsageError: there are fewer GPUs than processes.
    """
    if disable_cuda or not torch.cuda.is_available():
        if not disable_cuda and torch.version.cuda is None and os.path.exists(NVIDIA):
            log.warning("The GPU is not used: this torch %s has no CUDA", torch.__version__)
        return Devices(torch.device("cpu"), torch.device("cpu"))
    gpus = torch.cuda.device_count()
    if count > gpus:  # NCCL refuses two ranks on one GPU.
        raise UsageError(
            f"{count} ranks on this machine need as many GPUs, and it has {gpus} (each rank has to "
            "see all of them): start fewer, or train with --disable_cuda"
        )
    name, inference = torch.cuda.get_device_name, index + count
    if inference >= gpus or name(inference) != name(index):
        inference = index
    return Devices(torch.device("cuda", index), torch.device("cuda", inference))


class DeviceStream:
    """Copies one thread's tensors to a device and back. On the CPU nothing is copied.

    On a GPU the copies run on a separate stream, beside the kernels of other threads.
    """

    def __init__(self, device: torch.device, *, urgent: bool = False) -> None:
        """``urgent``: whether its kernels go before those that wait on other streams.

        Only the thread that makes it may use it.
        """
        self._device = device
        self._stream: Any = None
        if device.type == "cuda":
            # Else the thread's device is the first GPU, and the end of each use of the stream makes
            # a CUDA context there.
            torch.cuda.set_device(device)
            self._stream = torch.cuda.Stream(device, priority=-1 if urgent else 0)

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Makes a context in which kernels run on this stream, too."""
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def upload(self, tensors: Any) -> Any:
        """Copies nested tuples of tensors to the device.

        When it returns, the originals may be reused. Without a GPU it returns the originals.
        """
        if self._stream is None:
            return tensors
        consumer = torch.cuda.current_stream(self._device)
        with self.active():
            moved = map_tensors(lambda t: t.to(self._device, non_blocking=True), tensors)
        # Whoever recycles a pinned buffer does not know about copies under way. Only this thread
        # waits: others compute meanwhile.
        self._stream.synchronize()
        if consumer != self._stream:
            # Freed memory must not serve the next upload while the consumer's kernels read it.
            map_tensors(lambda t: t.record_stream(consumer), moved)
        return moved

    def download(self, tensors: Any) -> Any:
        """Copies nested tuples of tensors that this stream computes to the CPU.

        They are complete.
        """
        if self._stream is None:
            return tensors
        with self.active():
            moved = map_tensors(lambda t: t.to("cpu", non_blocking=True), tensors)
        self._stream.synchronize()
        return moved


def record_event(module: torch.nn.Module) -> Any:
    """Records what this thread has asked the module's GPU for so far.

    Returns:
        An event for :func:`wait_event`; None on the CPU.
    """
    device = _device_of(module)
    if device.type == "cpu":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


def wait_event(event: Any, module: torch.nn.Module) -> None:
    """Makes the module's work that this thread asks for from now on wait for ``event``.

    Args:
        module: its device's current stream waits.
    """
    if event is not None:
        torch.cuda.current_stream(_device_of(module)).wait_event(event)


def _device_of(module: torch.nn.Module) -> torch.device:
    return next(itertools.chain(module.parameters(), module.buffers())).device


def map_tensors(function: Callable[..., Any], *nests: Any) -> Any:
    """Returns nested tuples with ``function(tensor)`` in the place of each tensor.

    Of several equal nests the function takes the tensors of one place.
    """
    first = nests[0]
    if isinstance(first, torch.Tensor):
        return function(*nests)
    items = [map_tensors(function, *parts) for parts in zip(*nests, strict=True)]
    return type(first)(*items) if hasattr(first, "_fields") else tuple(items)
