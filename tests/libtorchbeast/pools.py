"""An actor pool with its inference, as several tests need one."""

import contextlib
import threading

import torch

from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher

T = 5


class Pool:
    """An actor pool with an inference thread that counts: the action is the call's number."""

    def __init__(self, addresses, envs=1, queue_size=None, state=(), unroll_length=T, **options):
        self.queue = BatchingQueue(batch_dim=1, maximum_batch_size=1, maximum_queue_size=queue_size)
        self.batcher = DynamicBatcher(batch_dim=1, timeout_ms=10)
        queues = self.queue, self.batcher
        options["environments_per_stream"] = envs
        self.pool = ActorPool(unroll_length, *queues, addresses, state, **options)
        self.error = None
        self.calls = 0
        self._threads = [
            threading.Thread(target=self._infer, daemon=True),
            threading.Thread(target=self._run, daemon=True),
        ]

    def _infer(self):
        for batch in self.batcher:
            env_output, state = batch.get_inputs()
            batch_size = env_output[1].shape[1]
            self.calls += 1
            action = torch.full((1, batch_size, 1), self.calls)
            seen = env_output[7].to(torch.float32)  # Anything of the right shape.
            batch.set_outputs(((action, seen), tuple(s + 1 for s in state)))

    def _run(self):
        try:
            self.pool.run()
        except Exception as error:
            self.error = error
            with contextlib.suppress(RuntimeError):  # Else whoever waits for a rollout hangs.
                self.queue.close()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(RuntimeError):
            self.queue.close()
        with contextlib.suppress(RuntimeError):
            self.batcher.close()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()

    def wait_for_error(self):
        self._threads[1].join(timeout=60)
        assert self.error is not None
        return str(self.error)


def run_pool(address, tls, **options):
    """Takes one rollout; returns it and what the pool raised."""
    with Pool([address], tls=tls, **{"connect_timeout_s": 60, **options}) as pool:
        rollout = next(pool.queue, None)
    return rollout, pool.error
