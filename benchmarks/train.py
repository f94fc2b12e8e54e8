"""Training end to end beside the network alone.

    python benchmarks/train.py [flags of torchbeast.polybeast]

First the network alone, in this process, on the threads that PolyBeast would use: inference at the
mean batch size of a run and learning, as many steps of either, on random frames. Then PolyBeast on
real games. Printed are agent steps per second and their ratio.
"""

from __future__ import annotations

import csv
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from torchbeast import polybeast
from torchbeast.core.learner import LearnerClosed
from torchbeast.core.threads import StopSignals
from torchbeast.core.types import AgentOutput, EnvOutput
from torchbeast.training import TrainingRun, prepare

NETWORK_SECONDS = 30
TRAINING_SECONDS = 120
# Servers start, queues fill: not counted.
WARM_UP_SECONDS = 15


def random_rows(rows: int, batch: int, num_actions: int, num_heads: int) -> tuple:
    env = EnvOutput(
        frame=torch.randint(256, (rows, batch, 4, 84, 84), dtype=torch.uint8),
        reward=torch.zeros(rows, batch),
        done=torch.zeros(rows, batch, dtype=torch.bool),
        task=torch.zeros(rows, batch, dtype=torch.int32),
        episode_step=torch.zeros(rows, batch, dtype=torch.int32),
        episode_return=torch.zeros(rows, batch),
        truncated=torch.zeros(rows, batch, dtype=torch.bool),
        game_over=torch.zeros(rows, batch, dtype=torch.bool),
        last_action=torch.zeros(rows, batch, dtype=torch.int64),
    )
    actor = AgentOutput(
        torch.zeros(rows, batch, 1, dtype=torch.int64),
        torch.zeros(rows, batch, num_actions),
        torch.zeros(rows, batch, num_heads),
        torch.zeros(rows, batch, num_heads),
    )
    return env, actor


def network_alone(arguments: list[str], savedir: str) -> float:
    """Steps per second that are both inferred and learned."""
    flags = polybeast.make_parser().parse_args(
        [*arguments, f"--savedir={savedir}", "--xpid=network", "--total_steps=1000000000"]
    )
    setup = prepare(flags)
    run = TrainingRun(flags, setup, StopSignals())
    agent = run.learner.agent
    heads = len(setup.games) if flags.use_popart else 1
    inference_batch = max(1, flags.num_actors // 2)
    inferred = 0
    stop = threading.Event()

    def infer() -> None:
        nonlocal inferred
        env, _ = random_rows(1, inference_batch, setup.spec.num_actions, heads)
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
        env, actor = random_rows(flags.unroll_length + 1, 1, setup.spec.num_actions, heads)
        while not stop.is_set():
            try:
                run.learner.learn(env, actor, agent.initial_state(1))
            except LearnerClosed:
                return

    threads = [threading.Thread(target=infer)]
    threads += [threading.Thread(target=learn) for _ in range(setup.plan.learner_threads)]
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


def end_to_end(arguments: list[str], savedir: str) -> float:
    """Steps per second of PolyBeast from the end of the warm-up on."""
    command = [sys.executable, "-m", "torchbeast.polybeast", *arguments]
    command += [f"--savedir={savedir}", "--xpid=run", "--total_steps=1000000000"]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent, stderr=subprocess.DEVNULL)
    time.sleep(WARM_UP_SECONDS + TRAINING_SECONDS)
    process.terminate()
    process.wait()
    with open(Path(savedir) / "run" / "logs.csv") as file:
        rows = [(float(r["seconds"]), int(r["step"])) for r in csv.DictReader(file)]
    rows = [row for row in rows[:-1] if row[0] >= WARM_UP_SECONDS]
    return (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0])


def main() -> None:
    arguments = sys.argv[1:]
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
        return
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as savedir:
        # In a child, so that its memory and threads are gone when PolyBeast runs.
        if "TORCHBEAST_NETWORK_ALONE" in os.environ:
            print(network_alone(arguments, savedir))
            return
        result = subprocess.run(
            [sys.executable, __file__, *arguments],
            env={**os.environ, "TORCHBEAST_NETWORK_ALONE": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        network = float(result.stdout.split()[-1])
        training = end_to_end(arguments, savedir)
    print(f"network alone: {network:7.0f} steps/s")
    print(f"end to end:    {training:7.0f} steps/s, {training / network:.2f} of it")


if __name__ == "__main__":
    main()
