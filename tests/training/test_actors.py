import pytest
import torch

from torchbeast.core.types import RunError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.runtime import workers
from torchbeast.training.acting import ActorConfig
from torchbeast.training.actors import ActorProcesses
from torchbeast.training.shared import RolloutBuffers, SharedWeights

RAISES = "tests.hostile:Raises-v0"


def make_actors(game, **changes):
    agent = AgentConfig(
        agent_type="resnet", num_actions=2, observation_shape=(1, 8, 8), tasks=(game,)
    )
    config = ActorConfig(
        tasks=(0,), agent=agent, env_options={}, compute_dtype=torch.float32, seed=1,
        step_timeout_s=60, max_failures=3, failure_window_s=600,
    )  # fmt: skip
    weights = SharedWeights(make_agent(agent))
    return ActorProcesses(config._replace(**changes), RolloutBuffers(agent, 5, 2), weights)


def test_an_environment_that_raises_again_and_again_ends_the_run(monkeypatch, caplog):
    monkeypatch.setattr(workers, "MIN_LIFE_S", 0.0)  # As if each had lived long.
    with (
        make_actors(RAISES) as actors,
        pytest.raises(RunError, match=r"^actor 0 \(Raises\) failed 3 times within 600 s: Zero"),
    ):
        actors.run()
    first, second, last = caplog.messages
    assert first.startswith("actor 0 (Raises) failed, restarting it (1 of 3 failures within 600 s)")
    assert "(2 of 3 failures within 600 s)" in second
    assert all("in fail" in message for message in (first, second, last))  # Of the traceback.
