"""Training end to end beside the network alone.

    python benchmarks/train.py [--baseline CHECKOUT | --against FLAGS] [FLAGS]

FLAGS are those of torchbeast.polybeast.

First the network alone, in this process, on the threads that PolyBeast would use: inference for
half of the environments at a time and learning, as many steps of either, on random frames. Then
PolyBeast on real games. Printed are agent steps per second, their ratio, and where the cores' time
goes: by threads, as the kernel counts it. The environments' share of the servers' time is what the
games take alone, measured in between. Linux only.

--baseline: another checkout of this program, built, instead of the network alone. PolyBeast of both
runs in turn. Printed are the median speeds, the median of the rounds' ratios, because a machine's
speed drifts, and where the time goes in both.

--against: flags that are added in every second run, instead of another checkout. The servers of a
Ray cluster are not among the run's processes, so their time is not counted:

    ray start --head --num-cpus 2
    python benchmarks/train.py --agent_type atari --num_servers 2 --against "--ray_address auto"
"""

from __future__ import annotations

import argparse
import collections
import logging
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

if str(Path(__file__).parent.parent) not in sys.path:  # gpu.py has it behind what is installed.
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from _processes import process_tree, thread_seconds
from _rollouts import random_rollout

from torchbeast import polybeast
from torchbeast.core.batch_gate import LearnerClosed
from torchbeast.envs import make_env
from torchbeast.records.csv_tables import Table
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.threads import available_cores
from torchbeast.train import TrainingConfig, TrainingRun, make_plan
from torchbeast.train.published_weights import PublishedWeights

NETWORK_SECONDS = 30
TRAINING_SECONDS = 120
# With a baseline: how long each run is.
ROUND_SECONDS = 60
ROOT = Path(__file__).parent.parent
START_TIMEOUT = 120
# Queues fill: not counted.
WARM_UP_SECONDS = 15
ENVIRONMENT_STEPS = 4000


def network_alone(arguments: list[str], savedir: str) -> float:
    """Steps per second that are both inferred and learned."""
    flags = polybeast.make_parser().parse_args(
        [*arguments, f"--savedir={savedir}", "--xpid=network", "--total_steps=1000000000"]
    )
    config = TrainingConfig.from_flags(vars(flags))
    plan = make_plan(config)
    run = TrainingRun(
        plan,
        StopSignals(),
        lambda agent: PublishedWeights(agent.inference_copy, plan.threads.inference_threads),
    )
    agent = run.learner.agent
    inference_batch = max(1, plan.num_actors // 2)
    inferred = 0
    stop = threading.Event()

    def infer() -> None:
        nonlocal inferred
        env, _ = random_rollout(1, inference_batch, plan.agent.num_actions)
        state = agent.initial_state(inference_batch)
        with torch.inference_mode():
            while not stop.is_set():
                # As many steps inferred as learned, within a batch.
                if inferred > run.learner.steps + flags.batch_size * flags.unroll_length:
                    time.sleep(0.005)
                else:
                    with run.weights.reading() as (copy, _):
                        copy(env, state)
                    inferred += inference_batch

    def learn() -> None:
        count = run.rollouts_at_once
        env, actor = random_rollout(flags.unroll_length + 1, count, plan.agent.num_actions)
        while not stop.is_set():
            try:
                run.learner.learn(env, actor, agent.initial_state(count))
            except LearnerClosed:
                return

    threads = [threading.Thread(target=infer)]
    threads += [threading.Thread(target=learn) for _ in range(plan.threads.learner_threads)]
    for thread in threads:
        thread.start()
    time.sleep(5)
    steps, start = run.learner.steps, time.monotonic()
    time.sleep(NETWORK_SECONDS)
    speed = (run.learner.steps - steps) / (time.monotonic() - start)
    stop.set()
    run.learner.close()
    for thread in threads:
        thread.join()
    return speed


def environment_alone(arguments: list[str]) -> float:
    """CPU seconds per step of the games, mean over them."""
    flags = polybeast.make_parser().parse_args(arguments)
    seconds = []
    config = TrainingConfig.from_flags(vars(flags))
    for game in config.games:
        env = make_env(game, **config.observation._asdict(), seed=0)
        env.reset()
        num_actions = int(env.action_space.n)  # type: ignore[attr-defined]
        actions = np.random.default_rng(0).integers(num_actions, size=ENVIRONMENT_STEPS)
        start = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(int(action))
            if terminated or truncated:
                env.reset()
        seconds.append((time.process_time() - start) / ENVIRONMENT_STEPS)
    return sum(seconds) / len(seconds)


class EndToEnd(NamedTuple):
    """A measured run of PolyBeast."""

    steps_per_second: float
    # What the program says that it waits for.
    held_back_by: str
    # CPU seconds per step, by what they were for.
    seconds: dict[str, float]


def seconds_by_purpose(root: int) -> dict[str, float]:
    """CPU seconds so far of a run, by what they were for."""
    seconds: dict[str, float] = collections.defaultdict(float)
    for process in process_tree(root):
        for name, value in thread_seconds(process).items():
            purpose = name.partition("-")[0] if "-" in name else "other"
            if name == "pool-delivery":
                purpose = "delivery"
            seconds["servers" if process != root else purpose] += value
    return seconds


def rows(run: Path) -> list[dict[str, str]]:
    """The rows of a run's logs.csv; none before there is one."""
    path = run / "logs.csv"
    return Table(path).rows if path.exists() else []


def end_to_end(
    arguments: list[str], checkout: Path | None = ROOT, seconds: float = TRAINING_SECONDS
) -> EndToEnd:
    """PolyBeast of a checkout, or what is installed, for ``seconds`` behind the warm-up."""
    with tempfile.TemporaryDirectory() as savedir:
        run = Path(savedir) / "run"
        command = [sys.executable, "-m", "torchbeast.polybeast", *arguments]
        command += [f"--savedir={savedir}", "--xpid=run", "--total_steps=1000000000"]
        with open(run.with_suffix(".out"), "w+") as output:
            process = subprocess.Popen(
                command, cwd=checkout or savedir, stdout=output, stderr=output
            )
            deadline = time.monotonic() + START_TIMEOUT
            while process.poll() is None and not rows(run):
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(0.1)
            if process.poll() is None:
                # The first row is there about five seconds after the start.
                time.sleep(WARM_UP_SECONDS - 5)
                start, before = time.monotonic(), seconds_by_purpose(process.pid)
                time.sleep(seconds)
                elapsed, after = time.monotonic() - start, seconds_by_purpose(process.pid)
                process.terminate()
                process.wait()
            # The last row is of the end, when queues are emptied.
            times = [(float(r["seconds"]), int(r["step"])) for r in rows(run)[:-1]]
            times = [row for row in times if row[0] >= WARM_UP_SECONDS]
            if process.returncode not in (0, 143) or len(times) < 2:
                output.seek(0)
                raise SystemExit(f"error: {' '.join(command)} failed:\n{output.read()}")
        speed = (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])
        # A thread that began in between used nothing before.
        spent = {name: value - before.get(name, 0.0) for name, value in after.items()}
        per_step = {name: value / (elapsed * speed) for name, value in spent.items()}
        return EndToEnd(speed, rows(run)[-2]["held_back_by"], per_step)


def print_breakdown(seconds: dict[str, float], environment: float, total: float) -> None:
    """``total``: the cores' seconds per step."""
    environment = min(environment, seconds["servers"])
    rows = {
        "learner threads": seconds["learner"],
        "inference threads": seconds["inference"],
        "environments": environment,
        "servers' wire": seconds["servers"] - environment,
        "actor pool: wire, copies into rollouts, batches": seconds["pool"],
        "actor pool: delivery of rollouts": seconds["delivery"],
        "all other threads": seconds["other"],
        "waiting": total - sum(seconds.values()),
    }
    print(f"\n{'CPU time per step':50}{'us':>8}{'share':>8}")
    for name, value in rows.items():
        print(f"{name:50}{value * 1e6:8.0f}{value / total:8.2f}")


def median(runs: list[EndToEnd]) -> EndToEnd:
    """The run of median speed."""
    return sorted(runs, key=lambda run: run.steps_per_second)[len(runs) // 2]


class Variant(NamedTuple):
    """What is compared."""

    name: str
    checkout: Path
    arguments: list[str]


def compare(baseline: Variant, variant: Variant, environment: float, rounds: int) -> None:
    """Prints how fast a variant is beside the baseline, both in turn.

    Each round has the other order of the one before: a machine that becomes slower all the time
    must not make one of them slower.
    """
    runs: dict[str, list[EndToEnd]] = {baseline.name: [], variant.name: []}
    for i in range(rounds):
        order = (baseline, variant) if i % 2 == 0 else (variant, baseline)
        for name, checkout, arguments in order:
            runs[name].append(end_to_end(arguments, checkout, ROUND_SECONDS))
    for name, ends in runs.items():
        typical = median(ends)
        each = ", ".join(f"{run.steps_per_second:.0f}" for run in ends)
        print(f"\n{name}: {typical.steps_per_second:.0f} steps/s ({each})")
        print_breakdown(typical.seconds, environment, available_cores() / typical.steps_per_second)
    ratios = [
        ours.steps_per_second / theirs.steps_per_second
        for theirs, ours in zip(*runs.values(), strict=True)
    ]
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"\nratio: {statistics.median(ratios):.2f} ({each})")


def network_alone_in_a_child(arguments: list[str]) -> float:
    """As :func:`network_alone`. Its memory and threads are gone when PolyBeast runs."""
    result = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, "TORCHBEAST_NETWORK_ALONE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    speed = float(result.stdout.split()[-1])
    if not speed:
        sys.exit("error: this comparison is for CPUs: add --disable_cuda, or use benchmarks/gpu.py")
    return speed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT")
    parser.add_argument("--against", type=shlex.split, metavar="FLAGS")
    parser.add_argument("--rounds", type=int, default=4)
    flags, arguments = parser.parse_known_args()
    logging.basicConfig(level=logging.WARNING)
    if "TORCHBEAST_NETWORK_ALONE" in os.environ:
        with tempfile.TemporaryDirectory() as savedir:
            print(network_alone(arguments, savedir))
        return
    environment = environment_alone(arguments)
    if flags.baseline or flags.against:
        first = Variant("baseline", (flags.baseline or ROOT).resolve(), arguments)
        second = Variant("this", ROOT, [*arguments, *(flags.against or [])])
        compare(first, second, environment, flags.rounds)
        return
    network = network_alone_in_a_child(arguments)
    training = end_to_end(arguments)
    speed = training.steps_per_second
    print(f"network alone: {network:7.0f} steps/s")
    print(f"end to end:    {speed:7.0f} steps/s, {speed / network:.2f} of it")
    print_breakdown(training.seconds, environment, available_cores() / speed)


if __name__ == "__main__":
    main()
