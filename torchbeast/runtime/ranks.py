"""The processes that learn together, as ``torchrun`` starts them, and what they exchange.

Each process ("rank") has environments, inference and learner threads of its own. Ranks meet once
per learner step, where they add up their gradients. What they exchange is tensors and plain
values, never code.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime.text import first_line
from torchbeast.runtime.threads import work_threads_left

log = logging.getLogger("torchbeast")

# How long a rank waits for another one before the run ends: longer than one waits for its servers.
TIMEOUT = timedelta(minutes=20)
# Between two looks whether the ranks have exchanged what they had to.
POLL_S = 1e-3
# Of this rank alone. torch 2.7 has no AcceleratorError.
OWN_ERRORS = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
# What torchrun tells each process, in the order of the fields of Ranks.
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run, seen by one of them. The default is the only rank there is.

    The methods are for more than one rank, while :func:`join_ranks` is active.
    """

    index: int = 0
    """This rank's number."""

    count: int = 1
    """Ranks of the run."""

    local_index: int = 0
    """This rank's number among those of this machine."""

    local_count: int = 1
    """Ranks of this machine."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes the files of the run and shows its progress."""
        return self.index == 0

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Adds tensors up over all ranks, in place. All ranks end with the same bits.

        Args:
            tensors: as many, of the same shapes and types, in every rank.

        Raises:
            RunError: another rank ended or did not answer.
        """
        with _named_errors():
            for kind in sorted({(str(t.dtype), str(t.device)) for t in tensors}):
                group = [t for t in tensors if (str(t.dtype), str(t.device)) == kind]
                flat = torch.cat([t.reshape(-1) for t in group])
                _finish(dist.all_reduce(flat, async_op=True))
                pieces = flat.split([t.numel() for t in group])
                for tensor, piece in zip(group, pieces, strict=True):
                    tensor.copy_(piece.view(tensor.shape))

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Returns every rank's ``tensor``, which has the same shape in all, in their order.

        Raises:
            RunError: another rank ended or did not answer.
        """
        tensor = tensor.contiguous()
        gathered = [torch.empty_like(tensor) for _ in range(self.count)]
        with _named_errors():
            _finish(dist.all_gather(gathered, tensor, async_op=True))
        return gathered

    def broadcast(self, contents: dict[str, Any] | None) -> dict[str, Any]:
        """Returns the first rank's ``contents``: tensors and plain values.

        Args:
            contents: of the first rank; None in the others.

        Raises:
            RunError: another rank ended or did not answer.
        """
        file = io.BytesIO()
        with _named_errors():
            if contents is not None:
                torch.save(contents, file)
            size = torch.tensor([len(file.getvalue())])
            dist.broadcast(size, src=0)
            data = bytearray(file.getvalue() or int(size))  # The others have room for it.
            dist.broadcast(torch.frombuffer(data, dtype=torch.uint8), src=0)
        if contents is not None:
            return contents
        # Without map_location each rank would make a copy on the first one's GPU.
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def read_ranks() -> Ranks:
    """Returns what ``torchrun`` says of this process; the only rank if it did not start it.

    Raises:
        UsageError: the environment variables contradict each other.
    """
    if "RANK" not in os.environ:
        return Ranks()
    missing = {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} - os.environ.keys()
    if missing:
        raise UsageError(
            f"RANK is set and {', '.join(sorted(missing))} are not: start the program with "
            "torchrun, or unset RANK"
        )
    # Other launchers may leave out which of the ranks are on one machine.
    values = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **os.environ}
    with contextlib.suppress(ValueError):
        ranks = Ranks(*(int(values[key]) for key in VARIABLES))
        fits = 0 <= ranks.index < ranks.count and 0 <= ranks.local_index < ranks.local_count
        if fits and ranks.local_count <= ranks.count:
            return ranks
    given = ", ".join(f"{key}={os.environ.get(key)}" for key in VARIABLES)
    raise UsageError(f"the environment variables of torchrun do not fit: {given}")


@contextlib.contextmanager
def join_ranks(ranks: Ranks, device: torch.device) -> Iterator[None]:
    """Connects the ranks of a run. A context manager; with one rank it does nothing.

    Args:
        device: where the tensors are that they add up; those of the CPU in any case.

    Raises:
        RunError: the other ranks cannot be reached.
    """
    if ranks.count == 1:
        yield
        return
    log.info("Rank %s of %s waits for the others", ranks.index, ranks.count)
    if ranks.local_count == ranks.count and sys.platform == "linux":
        # gloo would listen on the interface that the machine's name belongs to.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with _named_errors():
        store, *_ = next(dist.rendezvous("env://", timeout=TIMEOUT))
        dist.init_process_group(
            _name_backends(device),
            store=dist.PrefixStore(_agree_on_name(store, ranks), store),
            rank=ranks.index,
            world_size=ranks.count,
            timeout=TIMEOUT,
        )
    try:
        yield
    finally:
        # It would wait for a thread that still waits for another rank.
        if not work_threads_left():
            with contextlib.suppress(RuntimeError):  # The others may be gone.
                dist.destroy_process_group()


def _name_backends(device: torch.device) -> str:
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


def _agree_on_name(store: Any, ranks: Ranks) -> str:
    """Returns a name that these processes alone know.

    A store of torchrun outlives its restarts: without a new name, ranks would find the addresses of
    those that died. Here what they left cannot be mistaken. Each rank asks by a name that nobody
    had before, and the first rank answers all that ask until all have confirmed its own.
    """
    name = uuid.uuid4().hex
    deadline = time.monotonic() + TIMEOUT.total_seconds()

    def pause() -> None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no answer within {TIMEOUT}")
        time.sleep(0.05)

    def wait_for(key: str) -> None:
        while not store.check([key]):
            pause()

    if not ranks.is_first:
        store.set(f"torchbeast/asks/{ranks.index}", name)
        wait_for(f"torchbeast/answer/{name}")
        answer = store.get(f"torchbeast/answer/{name}").decode()
        store.set(f"torchbeast/confirms/{answer}/{ranks.index}", "")
        return answer
    for index in range(1, ranks.count):
        wait_for(f"torchbeast/asks/{index}")
        while not store.check([f"torchbeast/confirms/{name}/{index}"]):
            asker = store.get(f"torchbeast/asks/{index}").decode()
            store.set(f"torchbeast/answer/{asker}", name)
            pause()
    return name


def _finish(work: Any) -> None:
    """Waits for what ranks exchange. Raises RuntimeError.

    On a GPU, ``wait`` alone would let this thread's stream wait instead of the thread. That is the
    stream of the main thread, too: where a rank is gone it could not save the run.
    """
    while not work.is_completed():
        time.sleep(POLL_S)
    work.wait()


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except OWN_ERRORS:
        raise
    except RuntimeError as error:  # From torch.distributed, or from gloo below it.
        raise RunError(
            "another rank of this run ended or does not answer; what it printed says why "
            f"({first_line(error)})"
        ) from error
