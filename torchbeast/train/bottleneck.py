"""Which stage a run waits for."""

from __future__ import annotations

from torchbeast.records.progress import Bottleneck

# Weight of the newest look; with two looks a second the last five seconds count.
SMOOTHING = 0.1
# Environments per core beyond which more environments no longer hide the time of the others.
ENOUGH_ACTORS_PER_CORE = 16


class BottleneckDetector:
    """Looks at the queues now and then.

    Rollouts pile up before a slow learner, observations before slow inference; where neither piles
    up, both wait for the environments.
    """

    def __init__(
        self,
        *,
        queue_size: int,
        num_actors: int,
        num_servers: int,
        on_cluster: bool,
        learner_threads: int | None,
        cores: int,
        available_cores: int,
        agent_type: str,
        gpu: bool,
    ) -> None:
        """Describes the run.

        Args:
            queue_size: rollouts that wait for the learner at most.
            num_actors: environments of all games.
            num_servers: environment servers; 0 in MonoBeast.
            on_cluster: whether the servers have cores of other machines.
            learner_threads: how many the user asked for; None where the program chose.
            cores: cores that the run uses.
            available_cores: cores that it could use on this machine.
            agent_type: name of a network, or ``package.module:Class`` of the user's own.
            gpu: whether the learner is on a GPU.
        """
        self._queue_size = queue_size
        self._num_actors = num_actors
        has_more_cores = cores < available_cores
        if learner_threads is not None and learner_threads < cores and not gpu:
            self._learner_advice = "try more --num_learner_threads"
        elif gpu:
            self._learner_advice = "try a larger --batch_size"
        elif has_more_cores:
            self._learner_advice = "try more --cores"
        elif agent_type == "atari" or ":" in agent_type:
            self._learner_advice = "needs more cores or a GPU"
        else:
            self._learner_advice = "try --agent_type atari"
        if num_servers == 0 or num_actors < ENOUGH_ACTORS_PER_CORE * cores:
            self._environment_advice = "try more --num_actors"
        elif num_servers < cores or on_cluster:
            self._environment_advice = "try more --num_servers"
        elif has_more_cores:
            self._environment_advice = "try more --cores"
        else:
            self._environment_advice = "needs more cores"
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

    def find(self) -> Bottleneck | None:
        """Returns the slowest stage and what helps; None before the first look."""
        if self._rollouts is None:
            return None
        if self._rollouts > 0.5:
            return Bottleneck("learner", self._learner_advice)
        if self._observations > 0.25:
            return Bottleneck("inference", "try more --num_inference_threads")
        return Bottleneck("environments", self._environment_advice)
