import pytest
import torch

from tests.train.conftest import FLAGS
from torchbeast.core.types import RunError
from torchbeast.runtime.ranks import Ranks
from torchbeast.runtime.signals import StopSignals
from torchbeast.train import TrainingRun, make_plan
from torchbeast.train.monobeast_process import SharedWeights


@pytest.mark.parametrize("in_thread", [True, False])
def test_what_fails_at_the_end_does_not_hide_the_first_error(
    make_config, monkeypatch, tmp_path, in_thread
):
    def fail():
        raise ValueError("the first error")

    def fail_later(*_, **__):
        raise RuntimeError("the GPU is gone")

    plan = make_plan(make_config())

    def train():
        with TrainingRun(plan, StopSignals(), SharedWeights) as run:
            monkeypatch.setattr(run._outputs, "save", fail_later)
            check = (lambda: None) if in_thread else fail
            if in_thread:
                run.threads.start("failing", fail)
            run.supervise(check, lambda: {"learner": 0, "inference": 0}, lambda: None)

    with pytest.raises(ValueError, match="the first error"):
        train()
    log = (tmp_path / "run" / "out.log").read_text()
    assert "The run cannot be saved: RuntimeError: the GPU is gone" in log
    assert "ERROR torchbeast: the first error" in log


def test_what_fails_before_the_first_step_is_in_out_log(make_config, tmp_path):
    def fail(_):
        raise RunError("no shared memory is left")

    with pytest.raises(RunError, match="no shared memory"):
        TrainingRun(make_plan(make_config()), StopSignals(), fail)
    log = (tmp_path / "run" / "out.log").read_text()
    assert "ERROR torchbeast: no shared memory is left" in log


def test_a_finished_run_says_that_it_is(make_config, finished_run, caplog):
    caplog.set_level("INFO", "torchbeast")
    with TrainingRun(make_plan(make_config()), StopSignals(), SharedWeights) as run:
        run.supervise(lambda: None, lambda: {"learner": 0, "inference": 0}, lambda: None)
        run.finish()
    assert "All steps are done: a larger --total_steps continues the run" in caplog.text


def test_a_run_that_another_rank_stopped_fails(make_config):
    with TrainingRun(make_plan(make_config()), StopSignals(), SharedWeights) as run:
        run.learner.is_stopped = True
        run.supervise(lambda: None, lambda: {"learner": 0, "inference": 0}, lambda: None)
        with pytest.raises(RunError, match="another rank stopped the run"):
            run.finish()


def test_each_rank_and_each_resumption_plays_games_of_its_own(make_config, monkeypatch):
    shared, seeds, draws = [], [], []
    monkeypatch.setattr(Ranks, "broadcast", lambda _, c: shared.append(c) or shared[0])
    for index in range(3):
        plan = make_plan(make_config(), Ranks(index, 3, index, 3))
        run = TrainingRun(plan, StopSignals(), SharedWeights)
        seeds.append(run.own_seed)
        draws.append(torch.rand(1).item())
        run.learner.steps = 40
        seeds.append(run.own_seed)
        run._outputs.close()
    assert (len(set(seeds)), len(set(draws))) == (6, 3)


def test_a_run_that_diverges_ends_and_leaves_its_checkpoint(finished_run, start):
    before = (finished_run / "model.tar").read_bytes()
    code, _, err = start(
        "polybeast", *FLAGS, "--learning_rate=1e38", "--grad_norm_clipping=1e30",
        "--total_steps=100000", "--savedir", finished_run.parent,
    ).finish()  # fmt: skip
    assert code == 1, err
    assert err.splitlines()[-1].startswith("polybeast: error: training diverged: ")
    assert "Traceback" not in err
    assert (finished_run / "model.tar").read_bytes() == before
