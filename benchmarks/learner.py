"""The network alone on the CPU: what each measure brings.

    python benchmarks/learner.py [--agent_type atari] [--unroll_length T] [--batch_size B]
        [--use_lstm] [--only NAME ...]

Combined steps per second of inference at batch 16 and learning, one after the other: 1 / (time per
inferred step + time per learned step). Every line runs in a process of its own, since the allocator
is set up once. At the end: how far bfloat16 is from float32. On a processor without bfloat16 all
lines compute in float32, and the line of bfloat16 is left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from _rollouts import learn, random_rollout

from torchbeast.core.learner import Learner, rollouts_at_once
from torchbeast.core.types import LossConfig, OptimizerConfig
from torchbeast.models import Agent, AgentConfig, kernels, make_agent
from torchbeast.runtime.precision import choose_dtype, keep_freed_pages
from torchbeast.runtime.threads import available_cores

ACTIONS = 6
SECONDS = 8.0
# Where it is emulated, a batch takes longer than the measurement.
HAS_BFLOAT16 = choose_dtype("auto", torch.device("cpu")) == torch.bfloat16

# name: (bfloat16, channels last, rollouts at a time, keep pages, learner threads, our kernels)
VARIANTS = {
    "float32 NCHW, all cores (2019)": (False, False, "batch", False, 1, False),
    "channels last": (False, True, "batch", False, 1, False),
    "bfloat16": (True, True, "batch", False, 1, False),
    "one rollout at a time": (True, True, "one", False, 1, False),
    "pages kept": (True, True, "one", True, 1, False),
    "a learner thread per core": (True, True, "one", True, 0, False),
    "as many rows as suit the agent": (True, True, "rows", True, 0, False),
    "our kernels": (True, True, "rows", True, 0, True),
}


def make(flags: argparse.Namespace, bfloat16: bool, channels_last: bool) -> Agent:
    torch.manual_seed(0)
    config = AgentConfig(agent_type=flags.agent_type, num_actions=ACTIONS, use_lstm=flags.use_lstm)
    agent = make_agent(config)
    agent.compute_dtype = torch.bfloat16 if bfloat16 and HAS_BFLOAT16 else torch.float32
    if not channels_last:
        encode = agent.encode
        agent.encode = lambda x: encode(x.contiguous())  # type: ignore[assignment]
        for parameter in agent.parameters():
            parameter.data = parameter.data.contiguous()
    return agent


def measure(flags: argparse.Namespace) -> float:
    bfloat16, channels_last, at_once, keep, threads, ours = VARIANTS[flags.measure]
    if not ours:
        kernels.compiled = lambda: None  # type: ignore[assignment]
    if keep:
        keep_freed_pages()
    threads = threads or available_cores()
    torch.set_num_threads(max(1, available_cores() // threads))
    agent = make(flags, bfloat16, channels_last)
    steps: list[Any] = []
    learner = Learner(
        agent, LossConfig(), OptimizerConfig(total_steps=10**9), flags.batch_size, steps.append
    )
    rollouts = {
        "batch": flags.batch_size,
        "one": 1,
        "rows": rollouts_at_once(
            flags.batch_size, flags.unroll_length, threads, agent.rows_at_once
        ),
    }[at_once]
    part = random_rollout(flags.unroll_length + 1, rollouts, ACTIONS)
    state = agent.initial_state(rollouts)
    stop = threading.Event()

    def learn() -> None:
        while not stop.is_set():
            learner.learn(*part, state)

    workers = [threading.Thread(target=learn, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    while len(steps) < 2:
        time.sleep(0.01)
    first, start = learner.steps, time.monotonic()
    time.sleep(SECONDS)
    learned = (learner.steps - first) / (time.monotonic() - start)
    stop.set()
    for worker in workers:
        worker.join()
    row, _ = random_rollout(1, 16, ACTIONS)
    state = agent.initial_state(16)
    with torch.inference_mode():
        for _ in range(3):
            agent(row, state)
        start, count = time.monotonic(), 0
        while time.monotonic() - start < SECONDS / 4:
            agent(row, state)
            count += 16
    # With a thread per core, inference has one core and learning the others: what both get together
    # is what they would get one after the other on all cores.
    inferred = count / (time.monotonic() - start) * threads
    return 1 / (1 / learned + 1 / inferred)


def compare_precision(flags: argparse.Namespace) -> str:
    rollouts = random_rollout(81, 2, ACTIONS)
    exact, fast = (learn(make(flags, bfloat16, True), *rollouts) for bfloat16 in (False, True))
    loss, gradient = fast.errors(exact)
    return (
        f"bfloat16 against float32: the loss is off by {loss:.1e}, the gradient by {gradient:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent_type", default="resnet")
    parser.add_argument("--use_lstm", action="store_true")
    parser.add_argument("--unroll_length", type=int, default=80)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--only", nargs="*", choices=VARIANTS, help="Names of lines.")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.measure:
        print(measure(flags))
        return
    names = [name for name in VARIANTS if HAS_BFLOAT16 or name != "bfloat16"]
    base = None
    for name in flags.only or names:
        command = [sys.executable, __file__, *sys.argv[1:], "--measure", name]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        speed = float(result.stdout)
        base = base or speed
        print(f"{name:34}{speed:7.0f} steps/s{speed / base:7.2f} x", flush=True)
    if HAS_BFLOAT16:
        print(compare_precision(flags))
    else:
        print("This processor has no bfloat16: every line computes in float32.")


if __name__ == "__main__":
    main()
