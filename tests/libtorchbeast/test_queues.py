"""BatchingQueue and DynamicBatcher as TorchBeast's own code used them."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import libtorchbeast
from libtorchbeast import actorpool, rpcenv


def test_public_names_are_where_torchbeast_had_them():
    for name in (
        "BatchingQueue",
        "DynamicBatcher",
        "ActorPool",
        "ClosedBatchingQueue",
        "AsyncError",
        "NestError",
    ):
        assert getattr(actorpool, name) is getattr(libtorchbeast, name)
    assert rpcenv.Server is libtorchbeast.Server


@pytest.mark.parametrize("kind", [actorpool.BatchingQueue, actorpool.DynamicBatcher])
class TestConstruction:
    def test_min_batch_size_must_be_positive(self, kind):
        with pytest.raises(ValueError, match="Min batch size must be >= 1"):
            kind(batch_dim=0, minimum_batch_size=0, maximum_batch_size=1)

    def test_max_batch_size_must_not_be_below_min(self, kind):
        with pytest.raises(ValueError, match="Max batch size must be >= min batch size"):
            kind(batch_dim=0, minimum_batch_size=3, maximum_batch_size=2)

    def test_close_twice_is_an_error(self, kind):
        queue = kind()
        queue.close()
        assert queue.is_closed()
        with pytest.raises(RuntimeError, match="Queue was closed already"):
            queue.close()

    def test_iteration_ends_when_closed(self, kind):
        queue = kind()
        queue.close()
        assert list(queue) == []


class TestBatchingQueue:
    def test_batches_nests_along_batch_dim(self):
        queue = actorpool.BatchingQueue(batch_dim=1, minimum_batch_size=2, maximum_batch_size=2)
        for i in range(2):
            queue.enqueue(
                ({"x": torch.full((3, 1, 2), i)}, [torch.full((1, 1), i, dtype=torch.bool)])
            )
        batch = next(queue)
        assert batch[0]["x"].shape == (3, 2, 2)
        assert batch[0]["x"][:, 1].eq(1).all()
        assert batch[1][0].tolist() == [[False, True]]

    @pytest.mark.parametrize(
        "dtype",
        [
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
        ],
    )
    def test_every_dtype_survives(self, dtype):
        queue = actorpool.BatchingQueue(batch_dim=0, minimum_batch_size=2)
        values = torch.tensor([[0, 1, 1]]).to(dtype)
        queue.enqueue(values)
        queue.enqueue(values)
        batch = next(queue)
        assert batch.dtype == dtype
        assert torch.equal(batch, torch.cat([values, values]))

    def test_non_contiguous_and_numpy_inputs(self):
        queue = actorpool.BatchingQueue(batch_dim=0)
        matrix = torch.arange(12).view(3, 4)
        queue.enqueue((matrix.t(), matrix[:, ::2], np.arange(6).reshape(2, 3)[:, ::-1]))
        columns, every_other, reverse = next(queue)
        assert torch.equal(columns, matrix.t())
        assert torch.equal(every_other, matrix[:, ::2])
        assert reverse.tolist() == [[2, 1, 0], [5, 4, 3]]

    def test_inputs_need_a_batch_dimension(self):
        queue = actorpool.BatchingQueue(batch_dim=2)
        with pytest.raises(ValueError, match="must have more than batch_dim == 2 dimensions"):
            queue.enqueue(torch.ones(1, 1))

    def test_inputs_need_a_tensor(self):
        with pytest.raises(ValueError, match="Cannot enqueue empty vector of tensors"):
            actorpool.BatchingQueue().enqueue(())

    def test_inputs_that_require_grad_are_refused(self):
        with pytest.raises(ValueError, match="requires grad"):
            actorpool.BatchingQueue(batch_dim=0).enqueue(torch.ones(1, requires_grad=True))

    def test_inputs_must_be_arrays(self):
        with pytest.raises(TypeError, match="got str"):
            actorpool.BatchingQueue().enqueue("text")

    def test_items_that_do_not_fit_together_raise(self):
        queue = actorpool.BatchingQueue(batch_dim=0, minimum_batch_size=2)
        queue.enqueue((torch.ones(1, 2),))
        queue.enqueue(torch.ones(1, 2))
        with pytest.raises(actorpool.NestError, match="nests don't match"):
            next(queue)
        assert issubclass(actorpool.NestError, ValueError)

    def test_enqueue_to_closed_queue(self):
        queue = actorpool.BatchingQueue(batch_dim=0)
        queue.close()
        with pytest.raises(actorpool.ClosedBatchingQueue, match="Enqueue to closed queue"):
            queue.enqueue(torch.ones(1))

    def test_close_keeps_what_is_inside(self):
        queue = actorpool.BatchingQueue(batch_dim=0, minimum_batch_size=2, maximum_batch_size=2)
        for i in range(3):
            queue.enqueue(torch.tensor([i]))
        queue.close()
        assert [batch.tolist() for batch in queue] == [[0, 1], [2]]

    def test_full_queue_blocks_without_the_gil(self):
        queue = actorpool.BatchingQueue(batch_dim=0, maximum_batch_size=1, maximum_queue_size=1)
        queue.enqueue(torch.tensor([0]))
        thread = threading.Thread(target=queue.enqueue, args=(torch.tensor([1]),))
        thread.start()
        time.sleep(0.05)  # This thread runs on, so the other does not hold the GIL.
        assert queue.size() == 1
        assert next(queue).tolist() == [0]
        thread.join(timeout=60)
        assert next(queue).tolist() == [1]

    def test_tensors_are_released(self):
        queue = actorpool.BatchingQueue(batch_dim=0)
        tensor = torch.ones(1, 1000)
        alive = weakref.ref(tensor)
        queue.enqueue(tensor)
        del tensor
        batch = next(queue)
        assert batch.sum() == 1000
        del batch
        gc.collect()
        assert alive() is None

    def test_a_batch_of_one_is_a_copy(self):
        queue = actorpool.BatchingQueue(batch_dim=0)
        tensor = torch.zeros(1, 3)
        queue.enqueue(tensor)
        next(queue).add_(1)
        assert tensor.eq(0).all()

    def test_bounds_are_checked_without_check_inputs(self):
        queue = actorpool.BatchingQueue(batch_dim=9, minimum_batch_size=2, check_inputs=False)
        queue.enqueue(torch.ones(1, 1))
        queue.enqueue(torch.ones(1, 1))
        with pytest.raises(actorpool.NestError, match="Cannot batch along dimension 9"):
            next(queue)

    def test_keys_may_hold_any_character(self):
        queue = actorpool.BatchingQueue(batch_dim=0)
        queue.enqueue({"a\0b": torch.ones(1), "a\0c": torch.zeros(1), "é": torch.ones(1)})
        assert sorted(next(queue)) == ["a\0b", "a\0c", "é"]

    def test_timeout_may_be_infinite(self):
        queue = actorpool.BatchingQueue(batch_dim=0, timeout_ms=float("inf"))
        queue.enqueue(torch.ones(1))
        assert next(queue).tolist() == [1]

    def test_timeout_may_be_a_part_of_a_millisecond(self):
        queue = actorpool.BatchingQueue(batch_dim=0, minimum_batch_size=2, timeout_ms=0.9)
        waited = []
        for _ in range(5):
            queue.enqueue(torch.ones(1))
            start = time.monotonic()
            next(queue)
            waited.append(time.monotonic() - start)
        assert min(waited) >= 0.0009

    def test_batches_come_from_the_allocator(self):
        sizes = []

        def allocate(num_bytes):
            sizes.append(num_bytes)
            return torch.empty(num_bytes, dtype=torch.uint8)

        queue = actorpool.BatchingQueue(batch_dim=0, minimum_batch_size=2, allocator=allocate)
        queue.enqueue(torch.ones(1, 4096))
        queue.enqueue(torch.ones(1, 4096))
        assert next(queue).sum() == 8192
        assert sizes == [2 * 4096 * 4]


class TestDynamicBatcher:
    def test_compute_returns_the_callers_rows(self):
        batcher = actorpool.DynamicBatcher(batch_dim=0, minimum_batch_size=1, timeout_ms=5)

        def model():
            for batch in batcher:
                (inputs,) = batch.get_inputs()
                batch.set_outputs({"double": inputs * 2})

        thread = threading.Thread(target=model)
        thread.start()
        results = {}

        def call(i):
            results[i] = batcher.compute((torch.full((1, 3), i),))["double"]

        callers = [threading.Thread(target=call, args=(i,)) for i in range(20)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(timeout=60)
        batcher.close()
        thread.join(timeout=60)
        assert all(results[i].tolist() == [[2 * i] * 3] for i in range(20))

    def answer(self, inputs, outputs):
        """Lets one compute call be answered with ``outputs``; returns what either side raised."""
        batcher = actorpool.DynamicBatcher(batch_dim=1, timeout_ms=1)
        errors = []

        def call():
            try:
                batcher.compute(inputs)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        batch = next(batcher)
        try:
            for output in outputs:
                batch.set_outputs(output)
        except Exception as error:
            errors.append(error)
        del batch
        thread.join(timeout=60)
        return errors

    def test_dropped_batch_raises_in_compute(self):
        (error,) = self.answer(torch.ones(1, 1), [])
        assert isinstance(error, actorpool.AsyncError)
        assert "promise has been destructed prior to" in str(error)

    def test_outputs_need_a_batch_dimension(self):
        errors = self.answer(torch.ones(1, 1), [torch.ones(1)])
        assert isinstance(errors[0], ValueError)
        assert "output shape must have at least 2 dimensions" in str(errors[0])

    @pytest.mark.parametrize("inputs", [torch.ones(1, 1), torch.ones(1, 3)])
    def test_outputs_must_have_one_row_per_call(self, inputs):
        """As in TorchBeast, whatever the inputs have along the batch dimension."""
        assert self.answer(inputs, [torch.ones(1, 1)]) == []
        errors = self.answer(inputs, [torch.ones(1, 3)])
        assert isinstance(errors[0], ValueError)
        assert "Output shape must have the same batch dimension as the input batch size" in str(
            errors[0]
        )

    def test_outputs_out_of_bounds_raise_without_check_outputs(self):
        batcher = actorpool.DynamicBatcher(batch_dim=1, timeout_ms=1, check_outputs=False)
        errors = []

        def call():
            try:
                batcher.compute(torch.ones(1, 2))
            except ValueError as error:
                errors.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        next(batcher).set_outputs(torch.ones(3))
        thread.join(timeout=60)
        assert "along dimension 1 of [3]" in errors[0]

    def test_outputs_are_set_once(self):
        (error,) = self.answer(torch.ones(1, 1), [torch.ones(1, 1), torch.ones(1, 1)])
        assert isinstance(error, RuntimeError)
        assert "set_outputs called twice" in str(error)

    def test_close_wakes_callers(self):
        batcher = actorpool.DynamicBatcher()
        errors = []

        def call():
            try:
                batcher.compute(torch.ones(1, 1))
            except actorpool.ClosedBatchingQueue as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        while batcher.size() == 0:
            time.sleep(0.001)
        batcher.close()
        thread.join(timeout=60)
        assert len(errors) == 1
        with pytest.raises(actorpool.ClosedBatchingQueue):
            batcher.compute(torch.ones(1, 1))
