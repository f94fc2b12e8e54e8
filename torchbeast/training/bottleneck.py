"""Which stage of a run the others wait for."""

from __future__ import annotations

from torchbeast.records.progress import Limit

# Weight of the newest look; with two looks a second the last five seconds count.
SMOOTHING = 0.1


class Bottleneck:
    """Looks at the queues now and then.

    Rollouts pile up before a slow learner, observations before slow inference; where neither piles
    up, both wait for the environments.
    """

    def __init__(
        self,
        *,
        queue_size: int,
        num_actors: int,
        learner_threads: int,
        cores: int,
        agent_type: str,
        cuda: bool,
    ) -> None:
        self._queue_size = queue_size
        self._num_actors = num_actors
        if learner_threads < cores and not cuda:
            self._learner_flag = "--num_learner_threads"
        elif agent_type != "atari":
            self._learner_flag = "--agent_type atari"
        else:
            self._learner_flag = "--cores" if not cuda else "--batch_size"
        self._environment_flag = "--num_actors" if num_actors < 16 * cores else "--num_servers"
        self._rollouts: float | None = None  # Share of the learner's queue that is full.
        self._observations = 0.0  # Share of the environments that wait for inference.

    def look(self, queues: dict[str, int]) -> None:
        """Takes in the sizes of the queues."""
        rollouts = queues["learner"] / self._queue_size
        observations = queues["inference"] / self._num_actors
        if self._rollouts is None:
            self._rollouts, self._observations = rollouts, observations
        self._rollouts += SMOOTHING * (rollouts - self._rollouts)
        self._observations += SMOOTHING * (observations - self._observations)

    def find(self) -> Limit | None:
        """None before the first look."""
        if self._rollouts is None:
            return None
        if self._rollouts > 0.5:
            return Limit("the learner", self._learner_flag)
        if self._observations > 0.25:
            return Limit("inference", "--num_inference_threads")
        return Limit("the environments", self._environment_flag)
