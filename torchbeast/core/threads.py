"""What this machine has, and how it is dealt out."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NamedTuple


def available_cores() -> int:
    """Cores this process may use: its affinity, limited by the container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass  # No quota, or not Linux.
    return cores


class ThreadPlan(NamedTuple):
    """Threads of a PolyBeast run."""

    learner_threads: int
    # Intra-op threads of each learner and inference thread.
    torch_threads: int
    inference_threads: int
    servers: int

    def __str__(self) -> str:
        return (
            f"{self.servers} environment servers, {self.inference_threads} inference threads, "
            f"{self.learner_threads} learner threads of {self.torch_threads} cores"
        )


def plan_threads(
    cores: int,
    num_actors: int,
    num_tasks: int,
    *,
    cuda: bool,
    learner_threads: int | None = None,
    inference_threads: int | None = None,
    servers: int | None = None,
) -> ThreadPlan:
    """Deals out ``cores``. What is given is kept.

    On the CPU the learner is most of the work: one learner thread per core, each on one rollout at a
    time, beat one thread that splits its operations over the cores. A GPU wants whole batches.
    """
    if servers is None:
        wanted = min(cores, num_actors)
        servers = num_tasks * max(1, round(wanted / num_tasks))
    return ThreadPlan(
        learner_threads=learner_threads or (1 if cuda else cores),
        torch_threads=1,
        inference_threads=inference_threads or (2 if cuda else 1),
        servers=min(servers, num_actors),
    )


def end_with_parent() -> None:
    """Makes the kernel end this process when its parent dies (Linux; elsewhere look at getppid)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
