"""What a run on many machines would reach: measured costs, a model, and a check of the model.

    python benchmarks/scaling_model.py [--check] [--costs FILE] [flags of torchbeast.polybeast]

Measured on this machine: the CPU time per agent step of each stage of a run, and gloo's all-reduce.
From these the model computes which stage limits a run on 1 to 1000 environment hosts and 1 to 64
learners with a GPU. Nothing is measured on GPUs or on a network: these figures are assumptions,
which flags of this program change. ``--check`` compares the model with runs of 1, 2 and 4 ranks and
of 1 to 3 environment hosts on this machine. ``--costs`` keeps what was measured, or reads it. Linux
only.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import torch.distributed as dist
from actor_pool import make_certificates, measure_pool
from torch.utils.flop_counter import FlopCounterMode
from train import (
    WARM_UP_SECONDS,
    end_to_end,
    environment_alone,
    random_rows,
    steps_per_second,
)

from torchbeast import polybeast
from torchbeast.models import make_agent
from torchbeast.runtime.threads import available_cores
from torchbeast.training import TrainingConfig, prepare

ROOT = Path(__file__).parent.parent
CHECK_SECONDS = 60
# An observation's newest plane and the rest of its message, both ways.
BYTES_PER_STEP = 84 * 84 + 100
HOSTS = (1, 3, 10, 30, 100, 300, 1000)
LEARNERS = (1, 4, 16, 64)


class Costs(NamedTuple):
    """Seconds of one core for each agent step, and what a learner step exchanges."""

    environment: float
    wire: float
    """Of the environment servers."""
    pool: float
    inference: float
    learner: float
    other: float
    tls: float
    """What TLS over TCP costs more than a unix socket, at both ends together."""
    parameters: int
    """Numbers in the network, as many as its gradient has."""
    forward_flops: float
    """Floating-point operations of the network for one frame."""
    steps_per_update: int
    """Agent steps that a rank learns from before it adds up gradients with the others."""
    all_reduce: dict[str, float]
    """By number of ranks: CPU seconds of all ranks for one all-reduce of the gradient."""

    @property
    def step(self) -> float:
        """All stages of a run whose servers are on the same machine."""
        return sum(
            (self.environment, self.wire, self.pool, self.inference, self.learner, self.other)
        )


class Site(NamedTuple):
    """Assumptions about machines that are not here."""

    cores_per_host: int
    """Cores of an environment host."""
    cores_per_learner: int
    """Cores beside each GPU."""
    tflops: float
    """What the network reaches on one GPU, in 10^12 operations per second."""
    gigabits: float
    """Of the network card of each learner, and between learners."""
    latency_us: float
    """Of a message between learners."""


def predict_stages(costs: Costs, site: Site, hosts: int, learners: int) -> dict[str, float]:
    """Agent steps per second that each stage of a cluster allows; the lowest one limits the run.

    The network needs one forward pass for each step to act, and three passes' work to learn.
    Learners add up their gradients in a ring: each sends and receives ``2 (K - 1) / K`` times the
    gradient.
    """
    bytes_per_second = site.gigabits * 1e9 / 8
    compute = costs.steps_per_update * 4 * costs.forward_flops / (site.tflops * 1e12)
    ring = 2 * (learners - 1) / learners * costs.parameters * 4 / bytes_per_second
    ring += 2 * (learners - 1) * site.latency_us * 1e-6
    cores = learners * site.cores_per_learner
    return {
        "environment hosts": hosts * site.cores_per_host / (costs.environment + costs.wire),
        "actor pool": cores / (costs.pool + costs.other),
        "network card": learners * bytes_per_second / BYTES_PER_STEP,
        "GPU and all-reduce": learners * costs.steps_per_update / (compute + ring),
    }


def predict_here(costs: Costs, ranks: int = 1, *, tls: bool = False) -> float:
    """Agent steps per second of all ranks on this machine, if its cores never waited."""
    seconds = costs.step + (costs.tls if tls else 0.0)
    seconds += costs.all_reduce.get(str(ranks), 0.0) / (ranks * costs.steps_per_update)
    return available_cores() / seconds


def _all_reduce_worker(
    rank: int, ranks: int, numbers: int, file: str, results: list[float]
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    flat = torch.ones(numbers)
    dist.all_reduce(flat)
    repeats = 20
    start = time.process_time()
    for _ in range(repeats):
        dist.all_reduce(flat)
    results[rank] = (time.process_time() - start) / repeats
    dist.destroy_process_group()


def measure_all_reduce(ranks: int, numbers: int) -> float:
    """CPU seconds of all ranks together for the sum of one gradient."""
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory, context.Manager() as manager:
        results = manager.list([0.0] * ranks)
        torch.multiprocessing.spawn(
            _all_reduce_worker, (ranks, numbers, f"{directory}/store", results), nprocs=ranks
        )
        return sum(results)


def measure_costs(arguments: list[str]) -> Costs:
    """Runs PolyBeast for two minutes, and the other measurements before it."""
    flags = polybeast.make_parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as savedir:
        config = TrainingConfig.from_flags({**vars(flags), "savedir": savedir, "xpid": "costs"})
        agent = make_agent(prepare(config).agent)
        heads = len(config.games) if flags.use_popart else 1
        env, _ = random_rows(1, 1, agent.config.num_actions, heads)
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            agent(env, agent.initial_state(1))
        numbers = sum(p.numel() for p in agent.parameters())
        environment = environment_alone(arguments)
        seconds = end_to_end(arguments, savedir).seconds
    environment = min(environment, seconds["servers"])
    unix, tls = (measure_pool(16, 8, True, 2, 8.0, transport)[0] for transport in ("unix", "tls"))
    return Costs(
        environment=environment,
        wire=seconds["servers"] - environment,
        pool=seconds["pool"] + seconds["delivery"],
        inference=seconds["inference"],
        learner=seconds["learner"],
        other=seconds["other"],
        tls=(tls - unix) * 1e-6,
        parameters=numbers,
        forward_flops=float(counter.get_total_flops()),
        steps_per_update=flags.batch_size * flags.unroll_length,
        all_reduce={str(n): measure_all_reduce(n, numbers) for n in (2, 4)},
    )


def measure_run(command: Sequence[str], savedir: str, name: str) -> float:
    """Agent steps per second of a command that trains."""
    command = [*command, f"--savedir={savedir}", f"--xpid={name}", "--total_steps=1000000000"]
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(WARM_UP_SECONDS + CHECK_SECONDS)
    process.terminate()
    process.wait()
    return steps_per_second(Path(savedir) / name)


def measure_ranks(arguments: list[str], ranks: int, savedir: str) -> float:
    """Agent steps per second of all ranks together, which share this machine's cores."""
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [*torchrun, "-m", "torchbeast.polybeast", *arguments]
    return measure_run(command, savedir, f"ranks{ranks}")


def measure_hosts(arguments: list[str], hosts: int, savedir: str) -> float:
    """Agent steps per second with environment hosts that are processes here, over TLS."""
    tls = f"{savedir}/tls"
    make_certificates(tls)
    flags = polybeast.make_parser().parse_args(arguments)
    games = TrainingConfig.from_flags(vars(flags)).games
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bases = [f"localhost:{port + 100 * i}" for i in range(hosts)]
    serve = [sys.executable, "-m", "torchbeast.polybeast_env", f"--env={','.join(games)}"]
    serve += [f"--num_servers={len(games)}", f"--tls_dir={tls}"]
    servers = [
        subprocess.Popen(
            [*serve, f"--pipes_basename={base}"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for base in bases
    ]
    command = ["torchbeast.polybeast", *arguments, "--no_start_servers", f"--tls_dir={tls}"]
    command += [f"--num_servers={len(games) * hosts}", f"--pipes_basename={','.join(bases)}"]
    try:
        return measure_run(command, savedir, f"hosts{hosts}")
    finally:
        for server in servers:
            server.terminate()
            server.wait()


def check(costs: Costs, arguments: list[str]) -> None:
    """Prints the model's predictions beside measurements on this machine."""
    print(f"\n{'on this machine':34}{'predicted':>10}{'measured':>10}{'ratio':>8}")

    def row(name: str, predicted: float, measured: float) -> None:
        ratio = measured / predicted
        print(f"{name:34}{predicted:10.0f}{measured:10.0f}{ratio:8.2f}", flush=True)

    with tempfile.TemporaryDirectory() as savedir:
        for ranks in (1, 2, 4):
            name = f"{ranks} rank" + "s" * (ranks > 1)
            row(name, predict_here(costs, ranks), measure_ranks(arguments, ranks, savedir))
        for hosts in (1, 2, 3):
            name = f"{hosts} environment host" + "s" * (hosts > 1) + ", TLS"
            measured = measure_hosts(arguments, hosts, savedir)
            row(name, predict_here(costs, tls=True), measured)


def print_costs(costs: Costs) -> None:
    """The measured part."""
    print(f"{'measured on this machine':46}{'CPU us per step':>16}")
    for name in ("environment", "wire", "pool", "inference", "learner", "other", "tls"):
        print(f"{name:46}{getattr(costs, name) * 1e6:16.0f}")
    for ranks, seconds in costs.all_reduce.items():
        per_step = seconds / (int(ranks) * costs.steps_per_update)
        print(f"{f'all-reduce, {ranks} ranks on this machine':46}{per_step * 1e6:16.0f}")
    print(
        f"network: {costs.parameters / 1e6:.2f} million parameters, "
        f"{costs.forward_flops / 1e6:.0f} million operations for a frame"
    )


def print_model(costs: Costs, site: Site) -> None:
    """The modelled part."""
    print(
        "\nmodelled, agent steps per second and the stage that limits them; assumed: " + str(site)
    )
    print(f"{'environment hosts':18}" + "".join(f"{f'{n} GPU':>28}" for n in LEARNERS))
    for hosts in HOSTS:
        cells = []
        for learners in LEARNERS:
            stages = predict_stages(costs, site, hosts, learners)
            limit = min(stages, key=lambda name: stages[name])
            cells.append(f"{stages[limit]:,.0f} {limit}")
        print(f"{hosts:<18}" + "".join(f"{cell:>28}" for cell in cells))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Other flags are those of torchbeast.polybeast.",
        allow_abbrev=False,
    )
    parser.add_argument("--check", action="store_true", help="Compare the model with runs here.")
    parser.add_argument("--costs", type=Path, help="Read the measured costs, or write them.")
    parser.add_argument("--cores_per_host", type=int, default=32)
    parser.add_argument("--cores_per_learner", type=int, default=16)
    parser.add_argument(
        "--tflops", type=float, default=10.0, help="Reached on a GPU, not its peak."
    )
    parser.add_argument("--gigabits", type=float, default=10.0, help="Of a network card.")
    parser.add_argument("--latency_us", type=float, default=30.0, help="Of a message.")
    return parser


def main() -> None:
    flags, arguments = make_parser().parse_known_args()
    if flags.costs and flags.costs.exists():
        costs = Costs(**json.loads(flags.costs.read_text()))
    else:
        costs = measure_costs(arguments)
        if flags.costs:
            flags.costs.write_text(json.dumps(costs._asdict(), indent=1) + "\n")
    print_costs(costs)
    print_model(costs, Site(**{name: getattr(flags, name) for name in Site._fields}))
    if flags.check:
        check(costs, arguments)


if __name__ == "__main__":
    main()
