import threading
from types import SimpleNamespace

import pytest
import torch

from torchbeast.core.types import ObservationConfig, RunError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.runtime import workers
from torchbeast.train.monobeast_actors import ActorProcesses, learner_loop
from torchbeast.train.monobeast_process import ActorConfig, RolloutBuffers, SharedWeights


def test_a_buffer_is_given_back_when_it_has_been_learned_from():
    told = []

    def get(count):
        told.append("get")
        return [0] if told == ["get"] else None

    config = AgentConfig(agent_type="resnet", num_actions=2, observation_shape=(1, 8, 8))
    actors = SimpleNamespace(
        get=get, buffers=RolloutBuffers(config, 5, 1), give_back=lambda _: told.append("give back")
    )
    learner = SimpleNamespace(learn=lambda *_: told.append("learn"))
    learner_loop(actors, learner, torch.device("cpu"), 1)
    assert told == ["get", "learn", "give back", "get"]


def make_actors(game, **changes):
    agent = AgentConfig(
        agent_type="resnet", num_actions=2, observation_shape=(1, 8, 8), tasks=(game,)
    )
    config = ActorConfig(
        num_actors=1, agent=agent, observation=ObservationConfig(), full_action_space=False,
        compute_dtype=torch.float32, seed=1,
        step_timeout_s=60,
    )  # fmt: skip
    weights = SharedWeights(make_agent(agent))
    return ActorProcesses(config._replace(**changes), RolloutBuffers(agent, 5, 2), weights)


@pytest.mark.parametrize(
    ("name", "error"),
    [("Raises", "ZeroDivisionError"), ("Cancels", "asyncio.exceptions.CancelledError")],
)
def test_an_environment_that_raises_again_and_again_ends_the_run(caplog, name, error):
    told = rf"^actor 0 \({name}\) failed, 5 times within 900 s: {error}: the third step"
    with make_actors(f"tests.hostile:{name}-v0") as actors, pytest.raises(RunError, match=told):
        actors.run(0)
    first, second, *_ = caplog.messages
    assert first.startswith(
        f"actor 0 ({name}) failed, restarting it (1 of 5 failures within 900 s)"
    )
    assert "(2 of 5 failures within 900 s)" in second
    assert len(caplog.messages) == 5
    assert all("in fail" in message for message in caplog.messages)  # From the traceback.


@pytest.mark.parametrize("name", ["LeavesAProcess", "ClosesItsPipe"])
def test_an_actor_is_replaced_whatever_its_environment_does_to_its_processes(name):
    killed = rf"^actor 0 \({name}\) was killed by signal 9 \(Killed\), 5 times"
    with (
        make_actors(f"tests.hostile:{name}-v0") as actors,
        pytest.raises(RunError, match=killed),
    ):
        actors.run(0)


def test_each_actor_and_its_replacement_draw_other_levels(monkeypatch):
    monkeypatch.setattr(workers, "MAX_FAILURES", 100)
    levels = []
    with make_actors("tests.hostile:DrawsLevels-v0", num_actors=3) as actors:
        threads = [threading.Thread(target=actors.run, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(8):
                indices = actors.get(1)
                levels.append(bytes(actors.buffers[indices[0]].env.frame[0].flatten().tolist()))
                actors.give_back(indices)
        finally:
            actors.stop()
            for thread in threads:
                thread.join()
    for generator in zip(*(level.split() for level in levels), strict=True):
        assert len(set(generator)) == len(levels)


def test_an_environment_may_start_processes():
    with make_actors("tests.hostile:StartsAProcess-v0") as actors:
        thread = threading.Thread(target=actors.run, args=(0,))
        thread.start()
        try:
            assert actors.get(1) is not None
        finally:
            actors.stop()
            thread.join()
