import pytest
import torch

from torchbeast.train import bottleneck, prepare


@pytest.fixture
def make(make_config, monkeypatch):
    """Makes a detector for a run on a machine of so many cores; later flags win."""

    def build(*flags, machine=2, has_pool=True, gpu=False):
        monkeypatch.setattr(bottleneck, "available_cores", lambda _: machine)
        usual = ("--agent_type=resnet", "--batch_size=8", "--num_actors=16", "--cores=2")
        plan = prepare(make_config(*usual, *flags), has_pool=has_pool)
        if gpu:
            plan = plan._replace(devices=plan.devices._replace(learner=torch.device("cuda")))
        return bottleneck.BottleneckDetector(plan)

    return build


def look_at(detector, learner, inference):
    for _ in range(20):
        detector.look({"learner": learner, "inference": inference})


@pytest.mark.parametrize(
    ("learner", "inference", "text"),
    [
        (8, 0, "bottleneck: learner; try --agent_type atari"),
        (1, 8, "bottleneck: inference; try more --num_inference_threads"),
        (1, 1, "bottleneck: environments; try more --num_actors"),
    ],
)
def test_names_what_the_others_wait_for(make, learner, inference, text):
    detector = make()
    assert detector.find() is None
    look_at(detector, learner, inference)
    assert str(detector.find()) == text


@pytest.mark.parametrize(
    ("learner", "flags", "options", "advice"),
    [
        (8, ["--num_learner_threads=1"], {}, "try more --num_learner_threads"),
        (8, [], {"machine": 8}, "try more --cores"),
        (8, ["--agent_type=atari"], {"gpu": True}, "try a larger --batch_size"),
        (1, ["--batch_size=1"], {}, "try a larger --batch_size"),
        (8, ["--cores=16", "--num_learner_threads=1"], {}, "try more --num_learner_threads"),
        (8, ["--agent_type=atari", "--cores=16"], {"machine": 16}, "needs more cores or a GPU"),
        (0, ["--num_servers=1", "--num_actors=32"], {}, "try more --num_servers"),
        (0, ["--num_actors=32", "--ray_address=auto"], {}, "try more --num_servers"),
        # MonoBeast.
        (0, ["--num_actors=1", "--cores=2"], {"has_pool": False}, "try more --num_actors"),
        (0, ["--num_actors=2", "--cores=2"], {"has_pool": False}, "needs more cores"),
    ],
)
def test_what_is_slow_gets_advice_that_can_help(make, learner, flags, options, advice):
    detector = make(*flags, **options)
    look_at(detector, learner, inference=0)
    detector.look({"learner": 0, "inference": 0})  # A single look does not decide.
    assert detector.find() == ("learner" if learner else "environments", advice)
