"""The C++ actor pool and environment server.

Tensors cross into and out of this module without a copy (DLPack); it links neither torch nor NumPy.
"""

import hashlib
from pathlib import Path

import libtorchbeast._C as _C
from libtorchbeast._C import (
    ActorPool,
    AsyncError,
    Batch,
    BatchingQueue,
    ClosedBatchingQueue,
    DynamicBatcher,
    NestError,
    Server,
    is_local,
    remove_dead_socket,
)

__all__ = [
    "ActorPool",
    "AsyncError",
    "Batch",
    "BatchingQueue",
    "ClosedBatchingQueue",
    "DynamicBatcher",
    "NestError",
    "Server",
    "is_local",
    "remove_dead_socket",
]


def _check_build() -> None:
    """Raises ImportError if the compiled module has another interface than its stub describes."""
    interface = getattr(_C, "INTERFACE", None)
    stub = Path(__file__).with_name("_C.pyi")
    if stub.exists() and hashlib.sha256(stub.read_bytes()).hexdigest() != interface:
        raise ImportError("the compiled module is of other sources", name=__name__)


_check_build()
