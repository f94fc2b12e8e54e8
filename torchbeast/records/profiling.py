"""What the inside of a run looks like: statistics of gradients, and a trace of its threads."""

from __future__ import annotations

from pathlib import Path

import torch

STATISTICS = ("norm", "mean", "std", "max_abs")


def describe_gradients(module: torch.nn.Module) -> dict[str, float]:
    """Computes ``<layer>/<statistic>`` of every parameter that has a gradient; one copy from the
    device.

    The statistics are norm, mean, standard deviation and largest absolute value.
    """
    parameters = module.named_parameters()
    gradients = {name: p.grad.float() for name, p in parameters if p.grad is not None}
    if not gradients:
        return {}
    rows = [
        torch.stack([g.norm(), g.mean(), g.std(correction=0), g.abs().max()])
        for g in gradients.values()
    ]
    return {
        f"{name}/{statistic}": value
        for name, row in zip(gradients, torch.stack(rows).tolist(), strict=True)
        for statistic, value in zip(STATISTICS, row, strict=True)
    }


class StepTrace:
    """Traces all threads for some learner steps and writes a file for Perfetto.

    Call :meth:`update` now and then from one thread. Tracing costs time and memory for every
    operation: a few steps tell all there is to see.

    Args:
        skipped: learner steps before the trace, from the first update on.
    """

    def __init__(self, path: Path, skipped: int = 3, num_steps: int = 3) -> None:
        self._path = path
        self._skipped = skipped
        self._num_steps = num_steps
        # A resumed run does not begin at 0.
        self._begin: int | None = None
        self._profiler: torch.profiler.profile | None = None
        self._done = False

    def update(self, learner_steps: int) -> bool:
        """Starts or ends the trace if it is time. True when it was written just now."""
        if self._begin is None:
            self._begin = learner_steps
        steps = learner_steps - self._begin
        if self._done or steps < self._skipped:
            return False
        if self._profiler is None:
            self._profiler = torch.profiler.profile(
                experimental_config=torch._C._profiler._ExperimentalConfig(
                    profile_all_threads=True
                ),
            )
            self._profiler.start()
            return False
        if steps < self._skipped + self._num_steps:
            return False
        self.close()
        return self._path.exists()  # If not, the profiler has printed why.

    def close(self) -> None:
        """Writes what there is."""
        if self._profiler is not None and not self._done:
            self._profiler.stop()
            self._profiler.export_chrome_trace(str(self._path))
        self._done = True
