"""BatchingQueue and DynamicBatcher as TorchBeast's own code used them."""

import gc
import time
import weakref

import numpy as np
import pytest
import torch

import libtorchbeast
from libtorchbeast import actorpool, rpcenv
from libtorchbeast.actorpool import BatchingQueue, ClosedBatchingQueue, DynamicBatcher, NestError
from tests.threads import start

DTYPES = ["bool", "uint8", "int64", "float16", "bfloat16", "float64"]


def test_public_names_are_where_torchbeast_had_them():
    names = "BatchingQueue DynamicBatcher ActorPool ClosedBatchingQueue AsyncError NestError"
    for name in names.split():
        assert getattr(actorpool, name) is getattr(libtorchbeast, name)
    assert rpcenv.Server is libtorchbeast.Server


@pytest.mark.parametrize("kind", [BatchingQueue, DynamicBatcher])
def test_wrong_sizes_and_a_second_close_are_errors(kind):
    with pytest.raises(ValueError, match="Min batch size must be >= 1"):
        kind(batch_dim=0, minimum_batch_size=0, maximum_batch_size=1)
    with pytest.raises(ValueError, match="Max batch size must be >= min batch size"):
        kind(batch_dim=0, minimum_batch_size=3, maximum_batch_size=2)
    queue = kind()
    queue.close()
    assert queue.is_closed()
    assert list(queue) == []
    with pytest.raises(RuntimeError, match="Queue was closed already"):
        queue.close()


def test_a_queue_batches_nests_along_its_dimension():
    queue = BatchingQueue(batch_dim=1, minimum_batch_size=2, maximum_batch_size=2)
    for i in range(2):
        queue.enqueue(({"x": torch.full((3, 1, 2), i)}, [torch.full((1, 1), i, dtype=torch.bool)]))
    batch = next(queue)
    assert batch[0]["x"].shape == (3, 2, 2)
    assert batch[0]["x"][:, 1].eq(1).all()
    assert batch[1][0].tolist() == [[False, True]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives(dtype):
    queue = BatchingQueue(batch_dim=0, minimum_batch_size=2, timeout_ms=float("inf"))
    values = torch.tensor([[0, 1, 1]]).to(getattr(torch, dtype))
    queue.enqueue(values)
    queue.enqueue(values)
    batch = next(queue)
    assert batch.dtype == values.dtype
    assert torch.equal(batch, torch.cat([values, values]))


def test_inputs_in_any_memory_layout_arrive_as_they_are():
    queue = BatchingQueue(batch_dim=0)
    matrix = torch.arange(12).view(3, 4)
    queue.enqueue((matrix.t(), matrix[:, ::2], np.arange(6).reshape(2, 3)[:, ::-1]))
    columns, every_other, reverse = next(queue)
    assert torch.equal(columns, matrix.t())
    assert torch.equal(every_other, matrix[:, ::2])
    assert reverse.tolist() == [[2, 1, 0], [5, 4, 3]]


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (torch.ones(1), ValueError, "must have more than batch_dim == 1 dimensions"),
        ((), ValueError, "Cannot enqueue empty vector of tensors"),
        ("text", TypeError, "got str"),
        (torch.ones(1, 1, requires_grad=True), ValueError, r"use tensor.detach\(\)"),
    ],
)
def test_wrong_inputs_are_refused(inputs, error, message):
    with pytest.raises(error, match=message):
        BatchingQueue(batch_dim=1).enqueue(inputs)


def test_items_that_do_not_fit_together_raise():
    queue = BatchingQueue(batch_dim=0, minimum_batch_size=2)
    for item in ((torch.ones(1, 2),), torch.ones(1, 2)):
        queue.enqueue(item)
    with pytest.raises(NestError, match="nests don't match") as error:
        next(queue)
    assert isinstance(error.value, ValueError)


def test_a_full_queue_blocks_without_the_gil():
    queue = BatchingQueue(batch_dim=0, maximum_batch_size=1, maximum_queue_size=1)
    queue.enqueue(torch.tensor([0]))
    thread, _ = start(queue.enqueue, torch.tensor([1]))
    time.sleep(0.05)  # This thread runs on, so the other does not hold the GIL.
    assert queue.size() == 1
    assert next(queue).tolist() == [0]
    thread.join(timeout=60)
    assert next(queue).tolist() == [1]


def test_tensors_are_copied_and_released():
    queue = BatchingQueue(batch_dim=0)
    tensor = torch.ones(1, 1000)
    alive = weakref.ref(tensor)
    queue.enqueue(tensor)
    batch = next(queue)
    batch.add_(1)
    assert tensor.eq(1).all()
    del tensor, batch
    gc.collect()
    assert alive() is None


def test_batches_come_from_the_allocator():
    sizes = []

    def allocate(num_bytes):
        sizes.append(num_bytes)
        return torch.empty(num_bytes, dtype=torch.uint8)

    queue = BatchingQueue(batch_dim=0, minimum_batch_size=2, allocator=allocate)
    queue.enqueue(torch.ones(1, 4096))
    queue.enqueue(torch.ones(1, 4096))
    assert next(queue).sum() == 8192
    assert sizes == [2 * 4096 * 4]


def test_a_batcher_returns_its_callers_their_rows():
    batcher = DynamicBatcher(batch_dim=0, minimum_batch_size=1, timeout_ms=5)

    def answer():
        for batch in batcher:
            (inputs,) = batch.get_inputs()
            batch.set_outputs({"double": inputs * 2})

    model, _ = start(answer)
    callers = [start(batcher.compute, (torch.full((1, 3), i),)) for i in range(20)]
    for i, (caller, results) in enumerate(callers):
        caller.join(timeout=60)
        assert results[0]["double"].tolist() == [[2 * i] * 3]
    waiting, results = start(batcher.compute, (torch.ones(1, 3), torch.ones(1, 3)))
    waiting.join(timeout=60)  # The model fails, which drops the batch.
    batcher.close()
    model.join(timeout=60)
    assert isinstance(results[0], actorpool.AsyncError)
    assert "promise has been destructed prior to" in str(results[0])
    with pytest.raises(ClosedBatchingQueue):
        batcher.compute(torch.ones(1, 1))
