"""CPU time per agent step of everything between environments and network.

    python benchmarks/actor_pool.py
    python benchmarks/actor_pool.py --transports     unix sockets, TCP and TLS instead
    python benchmarks/actor_pool.py --threads 1 2 4    numbers of event threads instead, in turns

Constant environments that cost nothing, constant actions instead of a network; real server
processes, real streams. Printed are CPU microseconds per agent step, servers and actor pool
together, and those of the pool's event threads alone. The floor beside them is one environment in
shared memory: what it costs to copy each observation into a rollout and an inference batch and to
wake two processes once per step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from _processes import cpu_seconds, thread_seconds

from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher, Server
from torchbeast.envs.mock import Mock
from torchbeast.servers.addresses import load_tls
from torchbeast.train.polybeast_pipeline import make_batcher

UNROLL_LENGTH = 80
FRAME = (4, 84, 84)
TRANSPORTS = ("unix", "tcp", "tls")
# Environments in a message, whose servers send the newest plane: PolyBeast's way.
PER_STREAM = 8
# As Server and ActorPool take them: contents of certificate, key and root certificate.
Tls = list[str] | None


class Cost(NamedTuple):
    total: float
    """CPU microseconds per step of all processes."""
    events: float
    """CPU microseconds per step of the pool's event threads."""
    speed: float
    """Steps per second."""


def serve(address: str, tls: Tls) -> None:
    Server(Mock, address, 0, tls).run()


def make_addresses(transport: str, count: int, directory: str) -> list[str]:
    """Addresses of this machine that nobody listens on."""
    if transport == "unix":
        return [f"unix:{directory}/{i}" for i in range(count)]
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return [f"localhost:{port}" for port in ports]


def make_certificates(directory: str) -> Tls:
    """Certificates of both ends for ``localhost``."""
    script = Path(__file__).parent.parent / "deploy" / "make_certificates.sh"
    subprocess.run(["sh", script, directory, "localhost"], check=True)
    return load_tls(directory)


def measure_pool(
    num_envs: int,
    envs_per_stream: int,
    num_servers: int,
    seconds: float,
    transport: str = "unix",
    **options: Any,
) -> Cost:
    """What a step of constant environments costs. ``options`` are the pool's."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        tls = make_certificates(directory) if transport == "tls" else None
        addresses = make_addresses(transport, num_servers, directory)
        servers = [context.Process(target=serve, args=(a, tls), daemon=True) for a in addresses]
        for server in servers:
            server.start()
        queue = BatchingQueue(batch_dim=1, maximum_batch_size=1, maximum_queue_size=num_envs)
        batcher = make_batcher(num_envs)
        pool = ActorPool(
            UNROLL_LENGTH,
            queue,
            batcher,
            [addresses[i % num_servers] for i in range(num_envs // envs_per_stream)],
            (),
            environments_per_stream=envs_per_stream,
            tls=tls,
            **options,
        )
        pids = [os.getpid(), *(server.pid for server in servers)]
        warm_up = 4 * UNROLL_LENGTH * num_envs
        cost = run_pool(pool, queue, batcher, pids, warm_up, seconds)
        for server in servers:
            server.kill()
            server.join()
    return cost


def run_pool(
    pool: ActorPool,
    queue: BatchingQueue,
    batcher: DynamicBatcher,
    pids: Sequence[int | None],
    warm_up_steps: int,
    seconds: float,
) -> Cost:
    """Runs a pool with constant actions for some seconds, after a warm-up.

    Args:
        pool: not run before.
        queue: takes its rollouts, which nobody learns from.
        batcher: takes its observations.
        pids: the processes whose CPU time counts.
        warm_up_steps: that are not counted.
        seconds: of the measurement.
    """
    outputs: dict[int, Any] = {}

    def infer() -> None:
        for batch in batcher:
            (_, reward, *_), state = batch.get_inputs()
            size = reward.shape[1]
            if size not in outputs:
                outputs[size] = (
                    torch.zeros(1, size, 1, dtype=torch.int64),
                    *(torch.zeros(1, size, n) for n in (6, 1, 1)),
                )
            batch.set_outputs((outputs[size], state))

    def learn() -> None:
        for _ in queue:
            pass

    threads = [threading.Thread(target=f) for f in (infer, learn, pool.run)]
    for thread in threads:
        thread.start()
    while pool.count() < warm_up_steps:
        time.sleep(0.05)

    def used() -> np.ndarray:
        events = thread_seconds(os.getpid())["pool-events"]
        return np.array([sum(map(cpu_seconds, pids)), events, time.monotonic(), pool.count()])

    before = used()
    time.sleep(seconds)
    cpu, events, elapsed, steps = used() - before
    queue.close()
    batcher.close()
    for thread in threads:
        thread.join()
    return Cost(cpu / steps * 1e6, events / steps * 1e6, steps / elapsed)


def echo(name: str, request: Any, reply: Any) -> None:
    """The floor's other process: copies a frame into shared memory per request."""
    block = shared_memory.SharedMemory(name)
    target = np.ndarray(FRAME, np.uint8, block.buf)
    frame = np.full(FRAME, 7, np.uint8)
    while request.recv_bytes() != b"q":
        target[:] = frame
        reply.send_bytes(b"1")
    del target
    block.close()


def measure_floor(messages: int = 20000) -> float:
    """CPU microseconds per step of one environment in shared memory, one message per step."""
    context = multiprocessing.get_context("spawn")
    block = shared_memory.SharedMemory(create=True, size=int(np.prod(FRAME)))
    frame = np.ndarray(FRAME, np.uint8, block.buf)
    request, reply = context.Pipe(False), context.Pipe(False)
    process = context.Process(target=echo, args=(block.name, request[0], reply[1]), daemon=True)
    process.start()
    rollout = np.zeros((UNROLL_LENGTH + 1, *FRAME), np.uint8)
    batch = np.zeros((16, *FRAME), np.uint8)
    request[1].send_bytes(b"1")
    reply[0].recv_bytes()
    pids = [os.getpid(), process.pid]
    cpu = sum(map(cpu_seconds, pids))
    for i in range(messages):
        request[1].send_bytes(b"1")
        reply[0].recv_bytes()
        rollout[i % len(rollout)] = frame
        batch[i % len(batch)] = rollout[i % len(rollout)]
    cpu = sum(map(cpu_seconds, pids)) - cpu
    request[1].send_bytes(b"q")
    process.join()
    del frame
    block.close()
    block.unlink()
    return cpu / messages * 1e6


def compare(variants: Sequence[str], measure: Callable[[str], Cost], repeats: int) -> None:
    """Measures in turns; prints medians, and ratios to the first variant."""
    results: dict[str, list[Cost]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name in variants:
            results[name].append(measure(name))
    print(f"{'':12}CPU us/step   ratio   event threads    steps/s   ratio")
    medians = {name: Cost(*np.median(costs, axis=0)) for name, costs in results.items()}
    first = medians[variants[0]]
    for name, cost in medians.items():
        ratios = cost.total / first.total, cost.speed / first.speed
        print(
            f"{name:12}{cost.total:11.1f}{ratios[0]:8.2f}{cost.events:16.1f}{cost.speed:11.0f}"
            f"{ratios[1]:8.2f}"
        )


def compare_with_floor(flags: argparse.Namespace) -> None:
    """Prints what a step costs by what a message holds, and the least that it could cost."""
    floor = measure_floor()
    print(f"{'':44}CPU us/step   x floor   event threads    steps/s")
    print(f"{'shared memory, one environment (floor)':44}{floor:11.1f}{1.0:10.2f}")
    for per_stream in (1, PER_STREAM):
        cost = measure_pool(flags.envs, per_stream, flags.servers, flags.seconds)
        name = f"{flags.envs} environments, {per_stream} per message"
        ratio = cost.total / floor
        print(
            f"{name:44}{cost.total:11.1f}{ratio:10.2f}{cost.events:16.1f}{cost.speed:11.0f}",
            flush=True,
        )


def measure_apart(threads: str, flags: argparse.Namespace) -> Cost:
    """Measures a number of event threads, in a process: gRPC reads its environment once."""
    command = [sys.executable, __file__, "--apart", threads, "--envs", str(flags.envs)]
    command += ["--servers", str(flags.servers), "--seconds", str(flags.seconds)]
    environment = dict(os.environ)
    if threads != "1":
        environment["GRPC_POLL_STRATEGY"] = "poll"  # As PolyBeast has it with several threads.
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return Cost(*map(float, result.stdout.split()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="Per measurement.")
    parser.add_argument("--envs", type=int, help="(default: 16; with --threads 64)")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument(
        "--transports", action="store_true", help="Compare unix sockets, TCP and TLS, in turns."
    )
    parser.add_argument("--threads", nargs="+", default=[], metavar="N")
    parser.add_argument("--repeats", type=int, default=3, help="Of a comparison.")
    parser.add_argument("--apart", type=int, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    flags.envs = flags.envs or (64 if flags.threads else 16)

    def measure(transport: str = "unix", **options: Any) -> Cost:
        sizes = flags.envs, PER_STREAM, flags.servers, flags.seconds
        return measure_pool(*sizes, transport, **options)

    if flags.apart:
        print(*measure(num_threads=flags.apart))
    elif flags.transports:
        compare(TRANSPORTS, measure, flags.repeats)
    elif flags.threads:
        compare(flags.threads, lambda threads: measure_apart(threads, flags), flags.repeats)
    else:
        compare_with_floor(flags)


if __name__ == "__main__":
    main()
