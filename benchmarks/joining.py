"""What the tunnel of hosts that join costs: CPU time per step, beside servers reached directly.

    python benchmarks/joining.py [--tls_dir DIRECTORY]

DIRECTORY has certificates for localhost (deploy/make_certificates.sh). Neither the environments nor
the policy cost anything.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import psutil
from actor_pool import run_pool

import torchbeast
from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher
from torchbeast.joining.config import GatewayConfig
from torchbeast.joining.process import GatewayProcess, listen
from torchbeast.runtime.allocation import allocate
from torchbeast.runtime.servers import EnvServers, server_addresses

NUM_SERVERS = 2
WARM_UP_STEPS = 2000
SECONDS = 8.0


def step_pool(basename: str, environments: int, pid: int) -> tuple[float, float]:
    """Steps environments for some seconds.

    Args:
        basename: of the servers.
        environments: of each server.
        pid: the process that is looked at.

    Returns:
        CPU microseconds of that process per step, and steps per second.
    """
    queue, batcher = BatchingQueue(batch_dim=1, maximum_batch_size=1), DynamicBatcher(timeout_ms=5)
    addresses = server_addresses([basename], NUM_SERVERS)
    pool = ActorPool(20, queue, batcher, addresses, (), environments_per_stream=environments)
    return run_pool(pool, queue, batcher, [pid], WARM_UP_STEPS, SECONDS)


@contextlib.contextmanager
def join(environments: int, tls_dir: str | None) -> Iterator[tuple[str, int, int]]:
    """Runs a gateway and a host; yields the base name of the places, and both processes' ids."""
    with tempfile.TemporaryDirectory() as directory:
        listener = listen("localhost:0", tls_dir)
        port = listener.getsockname()[1]
        config = GatewayConfig(
            version=torchbeast.__version__,
            games=("Mock",),
            names=("Mock",),
            loads=allocate([environments * NUM_SERVERS], NUM_SERVERS),
            basename=f"unix:{directory}/env",
            observation={
                "preprocessing": "deepmind",
                "frame_format": "gray_stack",
                "frame_height": 84,
                "frame_width": 84,
            },
            full_action_space=False,
            observation_shape=(4, 84, 84),
            num_actions=4,
            step_timeout_s=300,
            seed=1,
            tls_dir=tls_dir,
        )
        with GatewayProcess(config, listener):
            (gateway,) = psutil.Process().children()
            tls = [f"--tls_dir={tls_dir}"] if tls_dir else []
            host = subprocess.Popen(
                [sys.executable, "-m", "torchbeast.polybeast_env", f"--join=localhost:{port}",
                 f"--num_servers={NUM_SERVERS}", *tls],
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                yield config.basename, gateway.pid, host.pid
            finally:
                host.terminate()
                host.wait()


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tls_dir", help="Certificates for localhost. (default: no encryption)")
    tls_dir = parser.parse_args().tls_dir
    print("environments per server  steps/s direct  joined  ratio  us per step: gateway  host")
    for environments in (1, 4, 8):
        with tempfile.TemporaryDirectory() as directory:
            basename = f"unix:{directory}/env"
            with EnvServers(basename, NUM_SERVERS, False, ["--env=Mock"]):
                _, direct = step_pool(basename, environments, os.getpid())
        with join(environments, tls_dir) as (basename, gateway, _):
            at_gateway, speed = step_pool(basename, environments, gateway)
        with join(environments, tls_dir) as (basename, _, host):
            at_host, _ = step_pool(basename, environments, host)
        print(
            f"{environments:23d}  {direct:14.0f}  {speed:6.0f}  {speed / direct:5.2f}  "
            f"{at_gateway:20.0f}  {at_host:4.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
