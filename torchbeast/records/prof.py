"""A trace of a running program."""

from __future__ import annotations

from pathlib import Path

import torch

from torchbeast.runtime.devices import find_gpu_type


class StepTrace:
    """Traces all threads from one learner step to another and writes a file for Perfetto.

    Call :meth:`update` now and then from one thread. Tracing costs time and memory for every
    operation: a few steps tell all there is to see.
    """

    def __init__(self, path: Path, first_step: int = 3, num_steps: int = 3) -> None:
        self._path = path
        self._first_step = first_step
        self._last_step = first_step + num_steps
        self._profiler: torch.profiler.profile | None = None
        self._done = False

    def update(self, learner_steps: int) -> bool:
        """Starts or ends the trace if it is time. True when it was written just now."""
        if self._done or learner_steps < self._first_step:
            return False
        if self._profiler is None:
            activities = [torch.profiler.ProfilerActivity.CPU]
            gpu = find_gpu_type()
            if gpu is not None:
                activities.append(getattr(torch.profiler.ProfilerActivity, gpu.upper()))
            self._profiler = torch.profiler.profile(
                activities=activities,
                experimental_config=torch._C._profiler._ExperimentalConfig(
                    profile_all_threads=True
                ),
            )
            self._profiler.start()
            return False
        if learner_steps < self._last_step:
            return False
        self.close()
        return True

    def close(self) -> None:
        """Writes what there is."""
        if self._profiler is not None and not self._done:
            self._profiler.stop()
            self._profiler.export_chrome_trace(str(self._path))
        self._done = True
