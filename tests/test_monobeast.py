"""MonoBeast as users run it: real processes, real games, real signals."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.conftest import ROOT
from tests.processes import nothing_left, read_logs, wait_until
from torchbeast import monobeast
from torchbeast.models import from_checkpoint
from torchbeast.records import checkpoint
from torchbeast.records.csv_tables import Table

FAST = ["--agent_type=atari", "--unroll_length=10", "--batch_size=2", "--num_actors=2"]
MOCK = [*FAST, "--env=Mock", "--fixed_input_scale"]
ENDLESS = [*MOCK, "--total_steps=1e9"]
TWO_GAMES = "PongNoFrameskip-v4,BreakoutNoFrameskip-v4"


def test_trains_several_games_with_popart(start, tmp_path):
    code, out, err = start(
        "monobeast", *FAST, "--savedir", tmp_path, "--xpid=run", "--total_steps=100",
        "--fixed_input_scale", "--env", TWO_GAMES, "--use_popart", "--use_lstm",
    ).finish()  # fmt: skip
    assert code == 0, err
    assert "100 steps; run in" in out
    assert "4 actors, " in err
    last = read_logs(tmp_path / "run")[-1]
    assert int(last["steps/Pong"]) + int(last["steps/Breakout"]) == 100
    assert from_checkpoint(tmp_path / "run").config.num_actions == 18


def test_a_signal_ends_everything_and_saves_a_run_that_both_programs_resume(start, tmp_path):
    options = ["--savedir", tmp_path, "--xpid=run", *MOCK]
    run = start("monobeast", *options, "--total_steps=1e9")
    run.wait_until(lambda: read_logs(tmp_path / "run"))
    family = run.family()
    run.process.send_signal(signal.SIGTERM)
    code, _, err = run.finish(timeout=120)
    assert code == 128 + signal.SIGTERM, err
    assert "Traceback" not in err
    nothing_left(run, family, timeout=60)
    for module in ("monobeast", "polybeast"):
        steps = checkpoint.load(tmp_path / "run" / "model.tar")["steps"]
        assert steps > 0
        code, _, err = start(module, *options, f"--total_steps={steps + 100}").finish()
        assert code == 0, err
        assert f"Resuming at step {steps:,}" in err
        assert checkpoint.load(tmp_path / "run" / "model.tar")["steps"] == steps + 100


def test_a_killed_actor_is_replaced(start, tmp_path):
    run = start("monobeast", *ENDLESS, "--savedir", tmp_path, "--xpid=run", "--num_buffers=3")
    run.wait_until(lambda: read_logs(tmp_path / "run"))
    # The fork server's children are the actors.
    servers = psutil.Process(run.process.pid).children()
    actors = [actor for server in servers for actor in server.children()]
    assert len(actors) == 2
    for actor in actors:
        actor.kill()
    before = int(read_logs(tmp_path / "run")[-1]["step"])
    # With three buffers it could not go on if one of them were lost.
    wait_until(lambda: int(read_logs(tmp_path / "run")[-1]["step"]) > before + 300)
    family = run.family()
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.finish(timeout=120)
    assert code == 130
    assert err.count("restarting it") == 2
    nothing_left(run, family, timeout=60)


def test_an_evaluation_that_is_under_way_at_the_end_is_finished(start, tmp_path):
    code, out, err = start(
        "monobeast", *FAST, "--savedir", tmp_path, "--xpid=run", "--total_steps=300",
        "--env=tests.moving_target:MovingTarget-v0", "--evaluate_every=200",
        "--evaluation_episodes=2000", "--agent_type=tests.checkpoints:Own",
    ).finish()  # fmt: skip
    assert code == 0, err
    scores = Table(tmp_path / "run" / "scores.csv")
    assert scores.column("step").tolist() == [200, 200, 300, 300]
    assert "Step 300, sampled actions: MovingTarget" in out
    assert not (tmp_path / "run" / "evaluated.tar").exists()


def test_runs_where_nothing_was_compiled_and_polybeast_says_what_is_missing(tmp_path):
    code = (
        "import sys\n"
        "for name in ('nest._C', 'libtorchbeast._C'): sys.modules[name] = None\n"
        "from torchbeast import {module} as command\n"
        "if __name__ == '__main__': sys.exit(command.main(sys.argv[1:]))\n"
    )
    results = {}
    for module in ("monobeast", "polybeast"):
        script = tmp_path / f"{module}_pure.py"
        script.write_text(code.format(module=module))
        results[module] = subprocess.run(
            [sys.executable, script, *MOCK, "--total_steps=40", "--savedir", tmp_path],
            capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert results["monobeast"].returncode == 0, results["monobeast"].stderr
    assert results["polybeast"].returncode == 2
    _, line = results["polybeast"].stderr.splitlines()
    assert "is not compiled" in line
    assert "torchbeast.monobeast" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num_buffers=8", "--batch_size=8"], "--num_buffers must be more than --batch_size"),
        (["--agent_type=big"], "choose resnet, atari, aaa or package.module:Class"),
        (["--agent_type=torch.nn:Linear"], "is no torchbeast.models.Agent"),
        (["--num_inference_threads=2"], "unrecognized arguments"),
    ],
)
def test_wrong_input_is_one_line_and_starts_nothing(tmp_path, arguments, message, assert_misuse):
    assert_misuse(monobeast.main, [*arguments, "--savedir", tmp_path], message)
    assert not list(tmp_path.iterdir())


def test_every_flag_of_2019_is_there():
    flags = vars(monobeast.make_parser().parse_args(["--aaa_input_format=rgb_last"]))
    assert flags["frame_format"] == "rgb_last"
    names = (
        "env mode xpid savedir num_actors total_steps batch_size unroll_length num_buffers "
        "num_learner_threads disable_cuda use_lstm agent_type frame_height frame_width "
        "save_model_every_nsteps entropy_cost baseline_cost discounting reward_clipping "
        "learning_rate alpha momentum epsilon grad_norm_clipping use_popart"
    )
    assert set(names.split()) <= set(flags)
