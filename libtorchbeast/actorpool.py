"""``libtorchbeast.actorpool``, the learner's side, under the name TorchBeast gave it."""

from libtorchbeast._C import (
    ActorPool,
    AsyncError,
    Batch,
    BatchingQueue,
    ClosedBatchingQueue,
    DynamicBatcher,
    NestError,
)

__all__ = [
    "ActorPool",
    "AsyncError",
    "Batch",
    "BatchingQueue",
    "ClosedBatchingQueue",
    "DynamicBatcher",
    "NestError",
]
