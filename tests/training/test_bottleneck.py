import pytest

from torchbeast.training.bottleneck import Bottleneck


def make(**changes):
    options = {
        "queue_size": 8,
        "num_actors": 16,
        "learner_threads": 2,
        "cores": 2,
        "agent_type": "resnet",
        "cuda": False,
    }
    return Bottleneck(**{**options, **changes})


@pytest.mark.parametrize(
    ("learner", "inference", "stage", "flag"),
    [
        (8, 0, "the learner", "--agent_type atari"),
        (1, 8, "inference", "--num_inference_threads"),
        (1, 1, "the environments", "--num_actors"),
    ],
)
def test_names_what_the_others_wait_for(learner, inference, stage, flag):
    bottleneck = make()
    assert bottleneck.find() is None
    for _ in range(20):
        bottleneck.look({"learner": learner, "inference": inference})
    assert bottleneck.find() == (stage, flag)


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"learner_threads": 1}, "--num_learner_threads"),
        ({"agent_type": "atari"}, "--cores"),
        ({"agent_type": "atari", "cuda": True}, "--batch_size"),
    ],
)
def test_the_flag_is_one_that_can_help(changes, flag):
    bottleneck = make(**changes)
    bottleneck.look({"learner": 8, "inference": 0})
    assert bottleneck.find().flag == flag


def test_a_single_look_does_not_decide():
    bottleneck = make()
    for _ in range(20):
        bottleneck.look({"learner": 8, "inference": 0})
    bottleneck.look({"learner": 0, "inference": 0})
    assert bottleneck.find().stage == "the learner"
