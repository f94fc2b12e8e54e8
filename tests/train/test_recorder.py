import json
import sys
import time
import types
from dataclasses import replace
from itertools import pairwise

from tests.learner_steps import STEP
from torchbeast.core.stats import FinishedGame
from torchbeast.train import make_plan
from torchbeast.train import recorder as training_recorder
from torchbeast.train.recorder import Recorder
from torchbeast.train.start import RunState, make_learner, resume_or_start


def test_meta_json_has_all_flags_and_what_was_made_of_them(make_config, tmp_path):
    config = make_config("--use_popart")
    recorder = Recorder(make_plan(config), RunState(seed=9))
    recorder.close()
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    assert meta["args"] == config.args
    assert meta["args"]["reward_clipping"] is None
    assert meta["reward_clipping"] == "none"
    assert (meta["xpid"], meta["seed"], meta["tasks"]) == ("run", 9, ["Mock"])
    assert meta["num_actions"] == 4
    assert meta["threads"]["learner_threads"] == 1


def test_weights_and_biases_is_told_of_the_run(make_config, monkeypatch):
    started = []
    wandb = types.SimpleNamespace(
        init=lambda **options: started.append(options), Settings=dict, finish=lambda: None
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    Recorder(make_plan(make_config("--logger=wandb")), RunState(seed=9)).close()
    (options,) = started
    assert (options["name"], options["config"]["batch_size"]) == ("run", 2)


def test_a_finished_run_that_is_started_again_keeps_its_meta_json(make_config, finished_run):
    before = (finished_run / "meta.json").read_text()
    plan = make_plan(make_config("--learning_rate=1", "--total_steps=10"))
    Recorder(plan, resume_or_start(plan)).close()
    assert (finished_run / "meta.json").read_text() == before
    plan = make_plan(make_config("--total_steps=80"))
    Recorder(plan, resume_or_start(plan)).close()
    assert json.loads((finished_run / "meta.json").read_text())["args"]["total_steps"] == 80


def test_tensorboard_gets_what_logs_csv_gets(make_config, finished_run, monkeypatch):
    plan = make_plan(make_config())
    state = resume_or_start(plan)
    recorder = Recorder(plan, state)
    learner = make_learner(plan, state, recorder.record_step, lambda: None)
    written = []
    monkeypatch.setattr(
        recorder._writer, "scalars", lambda values, step: written.append((step, values))
    )
    now = [time.monotonic() + 10.0]
    monkeypatch.setattr(training_recorder.time, "monotonic", lambda: now[0])
    queues = {"learner": 0, "inference": 0}
    for step in range(50, 75):
        ended = [FinishedGame(0, float(step), 7)] if step % 2 else []
        recorder.record_step(replace(STEP, steps=step, task_steps=[10], episodes=ended))
        recorder.update(queues, learner)
        now[0] += 0.5
    recorder.finish(queues, learner)
    recorder.close()
    steps = [step for step, values in written if "losses/entropy" in values]
    assert (steps[0], steps[-1], len(steps)) == (50, 74, 4)
    # Each game is in one point: the mean of those since the point before.
    means = {step: v.get("charts/episodic_return/Mock") for step, v in written}
    expected = {50: None}
    for before, step in pairwise(steps):
        games = [game for game in range(before + 1, step + 1) if game % 2]
        expected[step] = sum(games) / len(games)
    assert means == expected
    rows = [line.split(",")[0] for line in (finished_run / "logs.csv").read_text().splitlines()]
    assert rows[-len(steps) :] == [str(step) for step in steps]


def test_skipped_updates_are_named_and_learner_steps_traced(make_config, tmp_path, caplog):
    plan = make_plan(make_config("--write_profiler_trace"))
    state = resume_or_start(plan)
    recorder = Recorder(plan, state)
    learner = make_learner(plan, state, recorder.record_step, lambda: None)
    recorder.record_step(replace(STEP, task_steps=[20], fault="loss nan", skipped_updates=1))
    assert "an update that is not finite is skipped, number 1 in this run (loss nan)" in caplog.text
    for learner.learner_steps in range(8):
        recorder.update({"learner": 0, "inference": 0}, learner)
    recorder.close()
    assert (tmp_path / "run" / "trace.json").stat().st_size > 0


def test_a_resumed_run_counts_on_and_keeps_its_rows(make_config, finished_run, capsys):
    logs = finished_run / "logs.csv"
    before = logs.read_text()
    columns = before.splitlines()[0].count(",")
    logs.write_text(before + "60" + "," * columns + "\n")  # Behind the last checkpoint.
    plan = make_plan(make_config())
    state = resume_or_start(plan)
    recorder = Recorder(plan, state)
    learner = make_learner(plan, state, recorder.record_step, lambda: None)
    recorder.finish({"learner": 0, "inference": 0}, learner)
    recorder.close()
    assert "40 of 40 steps" in capsys.readouterr().err
    assert logs.read_text() == before
