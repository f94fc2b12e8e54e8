import shutil
import time

import pytest
import torch

from torchbeast.records import checkpoint
from torchbeast.train import make_plan
from torchbeast.train.checkpointer import Checkpointer
from torchbeast.train.recorder import Recorder
from torchbeast.train.start import make_learner, resume_or_start


@pytest.fixture
def make_checkpointer():
    recorders = []

    def make(config):
        plan = make_plan(config)
        state = resume_or_start(plan)
        recorders.append(Recorder(plan, state))
        learner = make_learner(plan, state, lambda _: None, lambda: None)
        return Checkpointer(recorders[-1].path, plan, state.seed, learner, recorders[-1].progress)

    yield make
    for recorder in recorders:
        recorder.close()


@pytest.fixture
def after_a_step(make_config, finished_run, make_checkpointer):
    """The checkpointer of a run that was resumed and has learned from a step since."""
    checkpointer = make_checkpointer(make_config())
    checkpointer._learner.steps += 1
    return checkpointer


def test_what_is_resumed_is_saved_again(make_config, finished_run, make_checkpointer):
    path = finished_run / "model.tar"
    before = checkpoint.load(path)
    checkpointer = make_checkpointer(make_config())
    assert checkpointer.path == path
    path.unlink()
    assert checkpointer.save()
    after = checkpoint.load(path)
    assert after.keys() == before.keys()
    for name in ("agent", "steps", "learner_steps", "task_steps", "seed", "frame_format"):
        assert after[name] == before[name]
    assert torch.equal(after["random_state"], before["random_state"])
    assert after["progress"]["games"] == before["progress"]["games"]
    assert after["task_steps"] == [40]


def test_a_directory_that_is_gone_is_made_anew(after_a_step, finished_run):
    shutil.rmtree(finished_run)
    assert after_a_step.save()
    assert checkpoint.load(finished_run / "model.tar")["steps"] == 41


def test_a_run_without_a_new_step_keeps_its_checkpoint(
    make_config, finished_run, make_checkpointer
):
    path = finished_run / "model.tar"
    before = path.read_bytes()
    checkpointer = make_checkpointer(make_config())
    assert checkpointer.save()
    assert checkpointer.saved_step == 40
    assert path.read_bytes() == before


def test_saves_each_time_that_the_interval_is_over(
    make_config, finished_run, make_checkpointer, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpointer = make_checkpointer(make_config())
    for now[0], is_saved in ((599, False), (600, True), (601, False), (1200, True)):
        checkpointer.path.unlink(missing_ok=True)
        checkpointer.save_if_due()
        assert checkpointer.path.exists() is is_saved, now


def test_nothing_is_saved_before_the_first_learner_step(make_config, make_checkpointer):
    checkpointer = make_checkpointer(make_config())
    assert checkpointer.save()
    assert not checkpointer.path.exists()


@pytest.mark.parametrize("damaged", ["a weight", "an average of the optimizer"])
def test_what_is_not_finite_is_never_saved(finished_run, after_a_step, caplog, damaged):
    before = (finished_run / "model.tar").read_bytes()
    learner = after_a_step._learner
    bias = learner.agent.policy.bias
    average = learner.optimizer.state[bias]["square_avg"]
    (bias.data if damaged == "a weight" else average)[0] = float("inf")
    assert not after_a_step.save()
    assert "is not finite" in caplog.text
    assert (finished_run / "model.tar").read_bytes() == before
