import pytest

from torchbeast.train.bottleneck import BottleneckDetector


def make(**changes):
    options = {
        "queue_size": 8,
        "num_actors": 16,
        "num_servers": 2,
        "on_cluster": False,
        "learner_threads": None,
        "cores": 2,
        "available_cores": 2,
        "agent_type": "resnet",
        "gpu": False,
    }
    return BottleneckDetector(**{**options, **changes})


def look_at(bottleneck, learner, inference):
    for _ in range(20):
        bottleneck.look({"learner": learner, "inference": inference})


@pytest.mark.parametrize(
    ("learner", "inference", "text"),
    [
        (8, 0, "bottleneck: learner; try --agent_type atari"),
        (1, 8, "bottleneck: inference; try more --num_inference_threads"),
        (1, 1, "bottleneck: environments; try more --num_actors"),
    ],
)
def test_names_what_the_others_wait_for(learner, inference, text):
    bottleneck = make()
    assert bottleneck.find() is None
    look_at(bottleneck, learner, inference)
    assert str(bottleneck.find()) == text


@pytest.mark.parametrize(
    ("learner", "changes", "advice"),
    [
        (8, {"learner_threads": 1}, "try more --num_learner_threads"),
        (8, {"available_cores": 8}, "try more --cores"),
        (8, {"agent_type": "atari", "gpu": True}, "try a larger --batch_size"),
        (0, {"num_servers": 1, "num_actors": 32}, "try more --num_servers"),
        (0, {"num_actors": 32, "on_cluster": True}, "try more --num_servers"),
        (0, {"num_actors": 32, "num_servers": 0}, "try more --num_actors"),  # MonoBeast.
    ],
)
def test_what_is_slow_gets_advice_that_can_help(learner, changes, advice):
    bottleneck = make(**changes)
    look_at(bottleneck, learner, inference=0)
    bottleneck.look({"learner": 0, "inference": 0})  # A single look does not decide.
    assert bottleneck.find() == ("learner" if learner else "environments", advice)
