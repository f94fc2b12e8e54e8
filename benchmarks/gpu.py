"""What must be known of a GPU, in six minutes.

    python benchmarks/gpu.py [--device cuda] [--seconds 25] [--env Pong]

Needs this program with its compiled part, as its wheel has it (``make wheel``), and a torch that
knows the GPU. Printed are, in turn:

1. how far losses and gradients are from the CPU's: float32 without TF32 must agree to 1e-5,
   bfloat16 to a few hundredths;
2. how fast a batch of rollouts gets to the GPU, from pinned and from other memory;
3. steps per second of the learner alone, on rollouts that are on the GPU already;
4. steps per second of training end to end, what the program says it waits for, and where the time
   of the cores goes;
5. whether a checkpoint of the GPU resumes on the CPU, and one of the CPU on the GPU.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

# Behind what is installed: a wheel has the compiled part, a checkout perhaps not.
sys.path.append(str(Path(__file__).parent.parent))

import torch
from _rollouts import learn, random_rollout
from train import EndToEnd, end_to_end

from torchbeast.core.learner import Learner
from torchbeast.core.types import AgentOutput, EnvOutput, LossConfig, OptimizerConfig
from torchbeast.models import Agent, AgentConfig, make_agent
from torchbeast.runtime.devices import DeviceStream
from torchbeast.runtime.precision import choose_dtype, use_whole_float32
from torchbeast.runtime.threads import available_cores

UNROLL_LENGTH, BATCH_SIZE, NUM_ACTIONS = 80, 32, 6


class Case(NamedTuple):
    """A kind of agent."""

    agent_type: str
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.agent_type, *self.flags])


CASES = [
    Case("resnet"),
    Case("atari"),
    Case("resnet", ("--use_lstm", "--use_popart")),
    Case("atari", ("--use_popart",)),
]
# Trained end to end.
RUNS = [
    (CASES[0], 48, 2),
    (CASES[0], 128, 2),
    (CASES[0], 256, 2),
    (CASES[0], 256, 1),
    (CASES[2], 256, 2),
    (CASES[3], 256, 2),
]


def make(case: Case, device: torch.device, dtype: torch.dtype) -> Agent:
    """Makes an agent whose weights are the same on every device."""
    torch.manual_seed(0)
    config = AgentConfig(
        agent_type=case.agent_type,
        num_actions=NUM_ACTIONS,
        use_lstm="--use_lstm" in case.flags,
        use_popart="--use_popart" in case.flags,
    )
    agent = make_agent(config).to(device)
    agent.compute_dtype = dtype
    return agent


def rollouts(device: torch.device, batch: int) -> tuple[EnvOutput, AgentOutput]:
    """Random frames and rewards, the same on every device."""
    env, actor = random_rollout(UNROLL_LENGTH + 1, batch, NUM_ACTIONS)
    return (
        EnvOutput(*(leaf.to(device) for leaf in env)),
        AgentOutput(*(leaf.to(device) for leaf in actor)),
    )


def compare_with_cpu(device: torch.device) -> None:
    use_whole_float32(device)
    cpu = torch.device("cpu")
    print(f"{'against float32 on the CPU':34}{'precision':>10}{'loss':>10}{'gradient':>10}")
    for case in CASES:
        exact = learn(make(case, cpu, torch.float32), *rollouts(cpu, 2))
        for dtype in {torch.float32, choose_dtype("auto", device)}:
            loss, gradient = learn(make(case, device, dtype), *rollouts(device, 2)).errors(exact)
            name = str(dtype).removeprefix("torch.")
            print(f"{case!s:34}{name:>10}{loss:10.1e}{gradient:10.1e}", flush=True)


def learner_alone(case: Case, device: torch.device, seconds: float) -> float:
    """Steps per second of updates from rollouts on the device."""
    agent = make(case, device, choose_dtype("auto", device))
    learner = Learner(
        agent, LossConfig(), OptimizerConfig(total_steps=10**9), BATCH_SIZE, lambda _: None
    )
    env, actor = rollouts(device, BATCH_SIZE)
    state = agent.initial_state(BATCH_SIZE)
    for _ in range(3):
        learner.learn(env, actor, state)
    steps, start = learner.steps, time.monotonic()
    while time.monotonic() - start < seconds:
        learner.learn(env, actor, state)
    if device.type != "cpu":
        torch.cuda.synchronize()
    return (learner.steps - steps) / (time.monotonic() - start)


def transfers(device: torch.device) -> None:
    """Prints how fast frames of a batch get to the device."""
    frames = rollouts(torch.device("cpu"), BATCH_SIZE)[0].frame
    stream = DeviceStream(device)
    for name, source in (("pinned", frames.pin_memory()), ("pageable", frames)):
        stream.upload(source)
        start = time.monotonic()
        for _ in range(20):
            stream.upload(source)
        speed = 20 * frames.nbytes / (time.monotonic() - start) / 1e9
        print(f"{f'a batch to the GPU, {name} memory':44}{speed:10.1f} GB/s", flush=True)


def train(savedir: str, flags: list[str]) -> str:
    """Runs PolyBeast to its end. Returns what it printed."""
    command = [sys.executable, "-m", "torchbeast.polybeast", f"--savedir={savedir}", *flags]
    # Not in a checkout, whose sources may have no compiled part.
    run = subprocess.run(command, cwd=savedir, stdout=PIPE, stderr=STDOUT, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"error: {' '.join(flags)} ended with {run.returncode}:\n{run.stdout}")
    return run.stdout


def describe(run: EndToEnd) -> str:
    """Steps per second, what the run waits for, and the cores that are busy."""
    cores = {name: seconds * run.steps_per_second for name, seconds in run.seconds.items()}
    busy = ", ".join(f"{name} {value:.1f}" for name, value in cores.items() if value >= 0.05)
    return f"{run.steps_per_second:10,.0f}  {run.held_back_by:14} {busy}"


def resume_elsewhere(env: str, first: list[str], second: list[str]) -> str:
    """Trains a run with the flags ``first``, resumes it with ``second``. Returns what it did."""
    with tempfile.TemporaryDirectory() as savedir:
        flags = ["--xpid=run", f"--env={env}", "--use_popart"]
        train(savedir, [*flags, *first, "--total_steps=10000"])
        text = train(savedir, [*flags, *second, "--total_steps=20000"])
    resumed = re.search(r"^Resuming at step ([\d,]+)", text, re.MULTILINE)
    ended = re.search(r"^([\d,]+) steps; run in", text, re.MULTILINE)
    if resumed is None or ended is None:
        raise SystemExit(f"error: the run did not resume:\n{text}")
    return f"resumed at step {resumed[1]}, trained to {ended[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--seconds", type=float, default=25, help="of a training run")
    parser.add_argument("--env", default="Pong")
    flags = parser.parse_args()
    device, seconds = flags.device, flags.seconds
    on_cpu = ["--disable_cuda"]
    here = on_cpu if device.type == "cpu" else []
    if device.type != "cpu" and not torch.cuda.is_available():
        parser.exit(2, f"gpu: error: torch {torch.__version__} sees no GPU here\n")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    print(f"{name}, {available_cores()} cores, torch {torch.__version__}\n")
    compare_with_cpu(device)
    if device.type != "cpu":
        print()
        transfers(device)
    print(f"\n{'learner alone':44}{'steps/s':>10}")
    for case in CASES:
        print(f"{case!s:44}{learner_alone(case, device, seconds / 4):10,.0f}", flush=True)
    print(f"\n{'end to end: environments, inference threads':44}{'steps/s':>10}  held back by")
    for case, environments, threads in RUNS:
        run = [f"--agent_type={case.agent_type}", *case.flags, f"--env={flags.env}"]
        run += [f"--num_actors={environments}", f"--batch_size={BATCH_SIZE}"]
        run += [f"--num_inference_threads={threads}", *here]
        name = f"{case!s}: {environments}, {threads}"
        print(f"{name:44}{describe(end_to_end(run, None, seconds))}", flush=True)
    print(f"\nGPU, then CPU: {resume_elsewhere(flags.env, here, on_cpu)}")
    print(f"CPU, then GPU: {resume_elsewhere(flags.env, on_cpu, here)}")


if __name__ == "__main__":
    main()
