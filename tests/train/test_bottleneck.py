import pytest

from torchbeast.train.bottleneck import BottleneckDetector


@pytest.mark.parametrize(
    ("learner", "inference", "stage"),
    [(8, 0, "learner"), (1, 8, "inference"), (1, 1, "environments")],
)
def test_names_what_the_others_wait_for(learner, inference, stage):
    detector = BottleneckDetector(queue_size=8, num_actors=16)
    for _ in range(20):
        detector.look({"learner": learner, "inference": inference})
    detector.look({"learner": 0, "inference": 0})  # A single look does not decide.
    assert detector.find() == stage
