"""The C++ actor pool and environment server.

Tensors cross into and out of this module without a copy (DLPack); it links neither torch nor NumPy.
"""

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
]
