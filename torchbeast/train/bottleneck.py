"""Which stage a run waits for."""

from __future__ import annotations

# Weight of the newest look; with two looks a second the last five seconds count.
SMOOTHING = 0.1


class BottleneckDetector:
    """Looks at the queues now and then.

    Rollouts pile up before a slow learner, observations before slow inference; where neither piles
    up, both wait for the environments.
    """

    def __init__(self, queue_size: int, num_actors: int) -> None:
        """``queue_size``: rollouts that the learner's queue holds. ``num_actors``: environments."""
        self._queue_size = queue_size
        self._num_actors = num_actors
        self._rollouts = 0.0  # Share of the learner's queue that is full.
        self._observations = 0.0  # Share of the environments that wait for inference.

    def look(self, queues: dict[str, int]) -> None:
        """Takes in the sizes of the queues."""
        rollouts = queues["learner"] / self._queue_size
        observations = queues["inference"] / self._num_actors
        self._rollouts += SMOOTHING * (rollouts - self._rollouts)
        self._observations += SMOOTHING * (observations - self._observations)

    def find(self) -> str:
        """Returns the slowest stage: learner, inference or environments."""
        if self._rollouts > 0.5:
            return "learner"
        return "inference" if self._observations > 0.25 else "environments"
