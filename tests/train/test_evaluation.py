import logging
import time
from dataclasses import replace

import psutil
import pytest

from tests.hostile import LEFT_PROCESS_S
from tests.learner_steps import STEP
from tests.processes import wait_until
from torchbeast.core.types import RunError
from torchbeast.play.game_loop import GameLoop
from torchbeast.records.csv_tables import Table
from torchbeast.records.scores import SCORE_FIELDS
from torchbeast.runtime import workers
from torchbeast.train import evaluation, make_plan
from torchbeast.train.checkpointer import Checkpointer
from torchbeast.train.evaluation import AgentEvaluator
from torchbeast.train.recorder import Recorder
from torchbeast.train.start import make_learner, resume_or_start

TARGET = "tests.moving_target:MovingTarget-v0"


def read_scores(run):
    return Table(run / "scores.csv").rows


class Run:
    """What an evaluator is used with, without anybody who trains."""

    def __init__(self, config):
        plan = make_plan(config)
        state = resume_or_start(plan)
        self.recorder = Recorder(plan, state)
        self.path = self.recorder.path
        self.learner = make_learner(plan, state, lambda _: None, lambda: None)
        self.checkpointer = Checkpointer(
            self.path, plan, state.seed, self.learner, self.recorder.progress
        )
        self.evaluator = AgentEvaluator(plan, self.recorder, self.checkpointer.save_agent)

    def reach(self, steps):
        self.learner.steps = steps
        self.evaluator.request_if_due(replace(STEP, steps=steps))
        self.evaluator.update()

    def finish(self, is_stopped=lambda: False):
        self.evaluator.finish(self.learner, is_stopped)

    @property
    def player(self):
        """The process of the evaluation that is under way."""
        return psutil.Process(self.evaluator._process.pid)


@pytest.fixture
def make_run(make_config):
    runs = []

    def make(*arguments):
        runs.append(Run(make_config(f"--env={TARGET}", *arguments)))
        return runs[-1]

    yield make
    for run in runs:
        run.evaluator.close()
        run.recorder.close()


def test_scores_are_recorded_and_what_comes_too_early_is_left_out(make_run, caplog):
    run = make_run("--evaluate_every=100", "--evaluation_episodes=9")
    for steps in (80, 100, 120, 200, 300):
        run.reach(steps)
    run.learner.steps = 320
    with caplog.at_level(logging.INFO, "torchbeast"):
        run.finish()
    assert caplog.text.count("is not finished") == 1
    rows = read_scores(run.path)
    assert [(row["step"], row["policy"]) for row in rows] == [
        ("100", "greedy"),
        ("100", "sampled"),
        ("320", "greedy"),
        ("320", "sampled"),
    ]
    assert list(rows[0]) == SCORE_FIELDS
    assert {(row["game"], row["episodes"], row["mean_steps"]) for row in rows} == {
        ("MovingTarget", "9", "3.0")
    }
    # The agent is the same, and so are the games.
    assert [row["mean"] for row in rows[:2]] == [row["mean"] for row in rows[2:]]
    assert run.evaluator.summary()[0].startswith("Step 320, greedy actions: MovingTarget ")
    events = b"".join(path.read_bytes() for path in run.path.glob("events.*"))
    assert b"eval/sampled/episodic_return/MovingTarget" in events
    caplog.clear()
    run.finish()  # The final agent has been evaluated.
    assert len(read_scores(run.path)) == 4
    run.evaluator.close()
    assert not (run.path / "evaluated.tar").exists()


def test_each_policy_plays_as_its_name_says(make_run, monkeypatch):
    seen, init = [], GameLoop.__init__
    run = make_run("--evaluate_every=100", "--evaluation_episodes=1")
    assert run.checkpointer.save_agent(run.path / "evaluated.tar")
    monkeypatch.setattr(
        GameLoop, "__init__", lambda *a, **k: seen.append(k["greedy"]) or init(*a, **k)
    )
    result = evaluation.evaluate(run.evaluator._request, lambda: None)
    assert [score.policy for score in result.scores] == ["greedy", "sampled"]
    assert seen == [True, False]


def test_a_user_who_stops_does_not_wait_for_the_final_agent(make_run):
    run = make_run("--evaluate_every=100")
    run.reach(100)
    player = run.player
    run.finish(is_stopped=lambda: True)
    assert not (run.path / "scores.csv").exists()
    run.evaluator.close()
    assert not player.is_running()


def test_a_finished_run_whose_agent_has_no_scores_gets_them_once(make_run, finished_run):
    for _ in range(2):
        run = make_run("--env=Mock", "--evaluate_every=20", "--evaluation_episodes=1")
        run.finish()
        assert run.path == finished_run
        assert [row["step"] for row in read_scores(run.path)] == ["40", "40"]


def test_it_has_low_priority_and_leaves_ctrl_c_to_the_trainer(make_run):
    run = make_run("--evaluate_every=100", "--evaluation_episodes=500")
    run.reach(100)
    wait_until(lambda: run.player.nice() == min(19, psutil.Process().nice() + evaluation.NICENESS))
    run.player.send_signal(2)
    run.finish()
    assert {row["step"] for row in read_scores(run.path)} == {"100"}


def test_an_environment_may_start_processes(make_run):
    game = "tests.hostile:StartsAProcess-v0"
    run = make_run("--evaluate_every=100", f"--env={game}", "--agent_type=resnet")
    run.reach(100)
    run.finish()
    assert {row["step"] for row in read_scores(run.path)} == {"100"}


def test_an_evaluation_ends_whatever_its_environment_leaves(make_run, caplog):
    game = "tests.hostile:LeavesAProcess-v0"
    run = make_run("--evaluate_every=100", f"--env={game}", "--agent_type=resnet")
    run.reach(100)
    start = time.monotonic()
    run.finish()
    assert time.monotonic() - start < LEFT_PROCESS_S  # What was left still runs.
    assert caplog.messages[-1] == "The evaluation of step 100 was killed by signal 9 (Killed)"


def test_a_killed_evaluation_is_reported_and_the_next_one_works(make_run, caplog):
    run = make_run("--evaluate_every=100", "--evaluation_episodes=1")
    run.reach(100)
    run.player.kill()
    run.learner.steps = 200
    run.finish()
    assert {row["step"] for row in read_scores(run.path)} == {"200"}
    (message,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert message == "The evaluation of step 100 was killed by signal 9 (Killed)"


def test_an_evaluation_that_hangs_is_ended(make_run, monkeypatch, caplog):
    monkeypatch.setattr(evaluation, "HANG_S", 1.0)
    run = make_run("--evaluate_every=100", "--env=tests.odd_games:Hangs-v0", "--step_timeout_s=1")
    run.reach(100)
    run.finish()
    assert caplog.messages == ["The evaluation of step 100 hung for 1 s"]


def test_an_evaluation_may_last_longer_if_its_steps_do_not(make_run, monkeypatch, caplog):
    monkeypatch.setattr(evaluation, "HANG_S", 4.0)  # The games take five seconds.
    game = "--env=tests.odd_games:Slow-v0"
    run = make_run("--evaluate_every=100", "--evaluation_episodes=1", game, "--step_timeout_s=4")
    run.reach(100)
    run.finish()
    assert {row["step"] for row in read_scores(run.path)} == {"100"}


def test_an_evaluation_that_cannot_start_leaves_no_pipe(make_run, monkeypatch, caplog):
    def fail(_):
        raise RunError("no process can be started")

    run = make_run("--evaluate_every=100")
    monkeypatch.setattr(workers, "start_worker", fail)
    before = psutil.Process().num_fds()
    run.reach(100)
    assert "The evaluation cannot start: no process can be started" in caplog.text
    assert psutil.Process().num_fds() == before


def test_what_fails_is_told_and_the_run_goes_on(make_run, caplog):
    run = make_run("--evaluate_every=100")
    run.evaluator.request_if_due(replace(STEP, steps=100))
    (run.path / "evaluated.tar").write_bytes(b"nothing")
    run.learner.steps = 100
    run.finish()
    assert "Loading the agent failed" in caplog.text
