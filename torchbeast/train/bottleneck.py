"""Which stage a run waits for."""

from __future__ import annotations

from torchbeast.models.loading import find_agent_type
from torchbeast.records.progress import Bottleneck
from torchbeast.runtime.devices import is_gpu
from torchbeast.runtime.threads import available_cores, useful_learner_threads
from torchbeast.train.plan import RunPlan

# Weight of the newest look; with two looks a second the last five seconds count.
SMOOTHING = 0.1
# Environments per core beyond which more environments no longer hide the time of the others.
ENOUGH_ACTORS_PER_CORE = 16


class BottleneckDetector:
    """Looks at the queues now and then.

    Rollouts pile up before a slow learner, observations before slow inference; where neither piles
    up, both wait for the environments.
    """

    def __init__(self, plan: RunPlan) -> None:
        config, cores, num_servers = plan.config, plan.cores, len(plan.servers)
        agent_type, batch_size = config.network.agent_type, config.learning.batch_size
        self._queue_size = config.learner_queue_size
        self._num_actors = plan.num_actors
        has_more_cores = cores < available_cores(plan.ranks.local_count)
        wanted_threads = config.machine.num_learner_threads
        learner_share = find_agent_type(agent_type).learner_share
        if is_gpu(plan.devices.learner):
            self._learner_advice = "try a larger --batch_size"
        elif wanted_threads is not None and wanted_threads < min(cores, batch_size):
            self._learner_advice = "try more --num_learner_threads"
        elif batch_size < useful_learner_threads(cores, learner_share):
            self._learner_advice = "try a larger --batch_size"
        elif has_more_cores:
            self._learner_advice = "try more --cores"
        elif agent_type == "atari" or ":" in agent_type:
            self._learner_advice = "needs more cores or a GPU"
        else:
            self._learner_advice = "try --agent_type atari"
        # MonoBeast, which has no servers, has a process for each environment.
        enough_actors = cores * (ENOUGH_ACTORS_PER_CORE if num_servers else 1)
        if plan.num_actors < enough_actors:
            self._environment_advice = "try more --num_actors"
        elif num_servers and (num_servers < cores or config.servers.ray_address is not None):
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
