import shutil
import time

import pytest

from torchbeast.core.learner import MAX_SKIPPED_IN_A_ROW
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
        recorder = recorders[-1]
        return Checkpointer(recorder.path, plan, state.seed, learner, recorder.progress), learner

    yield make
    for recorder in recorders:
        recorder.close()


@pytest.fixture
def after_a_step(make_config, finished_run, make_checkpointer):
    """The checkpointer and the learner of a resumed run that has learned from a step since."""
    checkpointer, learner = make_checkpointer(make_config())
    learner.steps += 1
    return checkpointer, learner


def test_what_is_resumed_is_saved_again(make_config, finished_run, make_checkpointer):
    path = finished_run / "model.tar"
    before = checkpoint.load(path)
    checkpointer, _ = make_checkpointer(make_config())
    assert checkpointer.path == path
    path.unlink()
    assert checkpointer.save()
    after = checkpoint.load(path)
    assert after.keys() == before.keys()
    for name in ("agent", "steps", "learner_steps", "task_steps", "seed", "frame_format"):
        assert after[name] == before[name]
    assert after["progress"]["games"] == before["progress"]["games"]
    assert after["task_steps"] == [40]


def test_a_directory_that_is_gone_is_made_anew(after_a_step, finished_run):
    shutil.rmtree(finished_run)
    checkpointer, _ = after_a_step
    assert checkpointer.save()
    assert checkpoint.load(finished_run / "model.tar")["steps"] == 41


def test_a_run_without_a_new_step_keeps_its_checkpoint(
    make_config, finished_run, make_checkpointer
):
    path = finished_run / "model.tar"
    before = path.read_bytes()
    checkpointer, _ = make_checkpointer(make_config())
    assert checkpointer.save()
    assert checkpointer.saved_step == 40
    assert path.read_bytes() == before


def test_saves_each_time_that_the_interval_is_over(
    make_config, finished_run, make_checkpointer, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpointer, _ = make_checkpointer(make_config())
    for now[0], is_saved in ((599, False), (600, True), (601, False), (1200, True)):
        checkpointer.path.unlink(missing_ok=True)
        checkpointer.save_if_due()
        assert checkpointer.path.exists() is is_saved, now


def test_nothing_is_saved_before_the_first_learner_step(make_config, make_checkpointer):
    checkpointer, _ = make_checkpointer(make_config())
    assert checkpointer.save()
    assert not checkpointer.path.exists()


def test_a_run_without_checkpoints_saves_nothing(make_config, make_checkpointer):
    checkpointer, learner = make_checkpointer(make_config("--disable_checkpoint"))
    learner.steps, learner.learner_steps = 20, 1
    assert checkpointer.save()
    assert not checkpointer.path.exists()


def test_a_run_that_has_diverged_keeps_its_last_checkpoint(finished_run, after_a_step):
    before = (finished_run / "model.tar").read_bytes()
    checkpointer, learner = after_a_step
    learner._skipped_in_a_row = MAX_SKIPPED_IN_A_ROW
    assert not checkpointer.save()
    assert (finished_run / "model.tar").read_bytes() == before


@pytest.mark.parametrize("damaged", ["a weight", "an average of the optimizer"])
def test_what_is_not_finite_is_never_saved(finished_run, after_a_step, caplog, damaged):
    before = (finished_run / "model.tar").read_bytes()
    checkpointer, learner = after_a_step
    bias = learner.agent.policy.bias
    average = learner.optimizer.state[bias]["square_avg"]
    (bias.data if damaged == "a weight" else average)[0] = float("inf")
    assert not checkpointer.save()
    assert "is not finite" in caplog.text
    assert (finished_run / "model.tar").read_bytes() == before
