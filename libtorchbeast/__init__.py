"""The C++ actor pool and environment server.

Tensors cross into and out of this module without a copy (DLPack); it links neither torch nor NumPy.
"""

import hashlib
from pathlib import Path

from libtorchbeast._C import INTERFACE as _INTERFACE
from libtorchbeast._C import (
    ActorPool,
    AsyncError,
    Batch,
    BatchingQueue,
    ClosedBatchingQueue,
    DynamicBatcher,
    NestError,
    Server,
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
]


def _check_build() -> None:
    """Raises ImportError if the compiled module has another interface than its stub describes."""
    stub = Path(__file__).with_name("_C.pyi")
    if stub.exists() and hashlib.sha256(stub.read_bytes()).hexdigest() != _INTERFACE:
        raise ImportError("the compiled module is of other sources", name=__name__)


_check_build()
