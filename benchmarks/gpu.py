"""What must be known of a GPU, in eight minutes.

    python benchmarks/gpu.py [--device cuda] [--seconds 40] [--env Pong]

Needs this program with its compiled part and a torch that knows the GPU. Printed are, in turn:

1. how far losses and gradients are from the CPU's: float32 without TF32 must agree to 1e-5,
   bfloat16 to a few hundredths;
2. steps per second of the learner alone, on rollouts that are on the GPU already;
3. steps per second of training end to end, with 48 environments;
4. whether a checkpoint of the GPU resumes on the CPU, and one of the CPU on the GPU.

Published figures beside it, each of its own hardware and setting: Cleanba 6,100 agent steps/s,
LeanRL 6,800 (both are the numbers that their authors give for one GPU; not measured here).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from train import random_rows, steps_per_second

from torchbeast.core.learner import Learner, OptimizerConfig
from torchbeast.core.losses import LossConfig, rollout_losses
from torchbeast.core.precision import choose_dtype
from torchbeast.core.types import AgentOutput, EnvOutput
from torchbeast.models import Agent, AgentConfig, make_agent
from torchbeast.runtime.threads import available_cores

UNROLL_LENGTH, BATCH_SIZE, NUM_ACTIONS = 80, 32, 6
NUM_ENVIRONMENTS = 48


class Case(NamedTuple):
    """A kind of agent."""

    agent_type: str
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.agent_type, *self.flags])


CASES = [
    Case("resnet"),
    Case("atari"),
    Case("resnet", ("--use_lstm",)),
    Case("atari", ("--use_popart",)),
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
    torch.manual_seed(0)
    env, actor = random_rows(UNROLL_LENGTH + 1, batch, NUM_ACTIONS, 1)
    env = env._replace(reward=torch.rand(UNROLL_LENGTH + 1, batch))
    return (
        EnvOutput(*(leaf.to(device) for leaf in env)),
        AgentOutput(*(leaf.to(device) for leaf in actor)),
    )


def loss_and_gradient(
    case: Case, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The total loss of two rollouts and its gradient, on the CPU in float64."""
    agent = make(case, device, dtype)
    env, actor = rollouts(device, 2)
    total = rollout_losses(agent, env, actor, agent.initial_state(2), LossConfig()).total
    gradients = torch.autograd.grad(total, list(agent.parameters()), allow_unused=True)
    flat = [gradient.flatten().double().cpu() for gradient in gradients if gradient is not None]
    return total.detach().double().cpu(), torch.cat(flat)


def compare_with_cpu(device: torch.device) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{'against float32 on the CPU':34}{'precision':>10}{'loss':>10}{'gradient':>10}")
    for case in CASES:
        exact, exact_gradient = loss_and_gradient(case, torch.device("cpu"), torch.float32)
        for dtype in {torch.float32, choose_dtype("auto", device)}:
            total, gradient = loss_and_gradient(case, device, dtype)
            loss_error = ((total - exact).abs() / exact.abs()).item()
            error = ((gradient - exact_gradient).norm() / exact_gradient.norm()).item()
            name = str(dtype).removeprefix("torch.")
            print(f"{case!s:34}{name:>10}{loss_error:10.1e}{error:10.1e}", flush=True)


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
        torch.accelerator.synchronize()
    return (learner.steps - steps) / (time.monotonic() - start)


def train(flags: list[str], seconds: float | None = None) -> str:
    """Runs PolyBeast, for a time or to its end. Returns what it printed."""
    command = [sys.executable, "-m", "torchbeast.polybeast", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if seconds is not None:
        time.sleep(seconds)
        process.terminate()
    text, _ = process.communicate()
    if process.returncode not in (0, 143):
        raise SystemExit(f"error: {' '.join(flags)} ended with {process.returncode}:\n{text}")
    return text


def end_to_end(case: Case, more: list[str], env: str, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as savedir:
        # The first twenty seconds are not counted.
        train(
            [
                *(f"--agent_type={case.agent_type}", *case.flags, *more, f"--env={env}"),
                *(f"--num_actors={NUM_ENVIRONMENTS}", f"--batch_size={BATCH_SIZE}"),
                *(f"--savedir={savedir}", "--xpid=run", "--total_steps=1000000000"),
            ],
            20 + seconds,
        )
        return steps_per_second(Path(savedir) / "run")


def resume_elsewhere(env: str, first: list[str], second: list[str]) -> str:
    """Trains a run with the flags ``first``, resumes it with ``second``. Returns what it did."""
    with tempfile.TemporaryDirectory() as savedir:
        flags = [f"--savedir={savedir}", "--xpid=run", f"--env={env}", "--use_popart"]
        train([*flags, *first, "--total_steps=10000"])
        text = train([*flags, *second, "--total_steps=20000"])
    found = re.search(r"Resuming at step ([\d,]+)", text)
    if found is None or "20,000 of 20,000 steps" not in text:
        raise SystemExit(f"error: the run did not resume:\n{text}")
    return f"resumed at step {found[1]}, trained to 20,000"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--seconds", type=float, default=40, help="of each measurement")
    parser.add_argument("--env", default="Pong")
    flags = parser.parse_args()
    device, seconds = flags.device, flags.seconds
    on_cpu = ["--disable_cuda"]
    here = on_cpu if device.type == "cpu" else []
    if device.type != "cpu" and not torch.accelerator.is_available():
        parser.exit(2, f"gpu: error: torch {torch.__version__} sees no GPU here\n")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    print(f"{name}, {available_cores()} cores, torch {torch.__version__}\n")
    compare_with_cpu(device)
    print(f"\n{'learner alone':44}{'steps/s':>10}")
    for case in CASES:
        print(f"{case!s:44}{learner_alone(case, device, seconds / 4):10,.0f}", flush=True)
    print(f"\n{'end to end':44}{'steps/s':>10}")
    for case in CASES:
        for threads in (1, 2):
            more = [f"--num_inference_threads={threads}", *here]
            speed = end_to_end(case, more, flags.env, seconds)
            print(f"{f'{case}, inference threads: {threads}':44}{speed:10,.0f}", flush=True)
    print(f"\nGPU, then CPU: {resume_elsewhere(flags.env, here, on_cpu)}")
    print(f"CPU, then GPU: {resume_elsewhere(flags.env, on_cpu, here)}")


if __name__ == "__main__":
    main()
