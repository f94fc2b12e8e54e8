"""PolyBeast as users run it: real processes, real games, real signals."""

import resource
import shutil
import signal
import subprocess
import sys

import pytest

from tests.libtorchbeast.pools import run_pool
from tests.network import free_port, is_open, make_certificates
from tests.processes import find, nothing_left, read_logs
from torchbeast import polybeast, polybeast_env
from torchbeast.models import from_checkpoint
from torchbeast.records import checkpoint, run_files
from torchbeast.records.csv_tables import Table
from torchbeast.train.recorder import GRADIENT_INTERVAL

FAST = ["--agent_type=atari", "--unroll_length=10", "--batch_size=2", "--num_actors=4"]
MOCK = [*FAST, "--env=Mock", "--fixed_input_scale"]
ENDLESS = [*MOCK, "--total_steps=1e9"]


def test_trains_pong(start, tmp_path):
    code, out, err = start(
        "polybeast", *FAST, "--savedir", tmp_path, "--xpid=run", "--total_steps=400", "--seed=1",
        "--cores=2", "--disable_cuda",
    ).finish()  # fmt: skip
    assert code == 0, err
    run = tmp_path / "run"
    assert "--preset small is for two cores" in err
    assert "400 steps; run in" in out
    assert "No full game finished yet: Pong" in out
    assert read_logs(run)[-1]["step"] == "400"
    assert (tmp_path / "latest").resolve() == run.resolve()
    assert list(run.glob("events.out.tfevents.*"))
    contents = checkpoint.load(run / "model.tar")
    assert contents["steps"] == 400
    agent = from_checkpoint(run)
    assert agent.frame_mean.mean() > 1  # Measured.


def test_trains_several_games_with_popart_and_all_actions(start, tmp_path):
    games = "PongNoFrameskip-v4,BreakoutNoFrameskip-v4"
    code, _, err = start(
        "polybeast", *FAST, "--savedir", tmp_path, "--xpid=run", "--total_steps=200",
        "--env", games, "--use_popart", "--use_lstm", "--track_gradients",
    ).finish()  # fmt: skip
    assert code == 0, err
    gradients = Table(tmp_path / "run" / "gradients.csv").rows
    assert float(gradients[0]["core.weight_hh_l0/norm"]) > 0
    # A row per so many learner steps.
    learned = int(read_logs(tmp_path / "run")[-1]["learner_steps"])
    assert len(gradients) == -(-learned // GRADIENT_INTERVAL)
    last = read_logs(tmp_path / "run")[-1]
    for game in ("Pong", "Breakout"):
        assert int(last[f"steps/{game}"]) > 0
        assert float(last[f"sigma/{game}"]) > 0
    assert last["mu/Pong"] != last["mu/Breakout"]
    assert from_checkpoint(tmp_path / "run").config.num_actions == 18


def test_a_stopped_run_resumes_where_it_was(start, tmp_path):
    run = tmp_path / "run"
    options = [
        *FAST, "--savedir", tmp_path, "--xpid=run", "--use_popart", "--save_model_every_nsteps=100",
        "--env=PongNoFrameskip-v4,BreakoutNoFrameskip-v4", "--fixed_input_scale",
        "--unit_statistics",
    ]  # fmt: skip
    first = start("polybeast", *options, "--total_steps=100000", "--seed=3")
    first.wait_until(lambda: read_logs(run))
    family = first.family()
    first.process.send_signal(signal.SIGHUP)
    code, _, err = first.finish()
    assert code == 128 + signal.SIGHUP, err
    assert "Traceback" not in err
    nothing_left(first, family)
    stopped = checkpoint.load(run / "model.tar")
    total = stopped["steps"] + 200
    code, _, err = start("polybeast", *options, f"--total_steps={total}").finish()
    assert code == 0, err
    assert f"Resuming at step {stopped['steps']:,}" in err
    assert f"Changed since then: --total_steps 100000 -> {total}" in err
    contents = checkpoint.load(run / "model.tar")
    assert contents["seed"] == 3
    assert contents["steps"] == sum(contents["task_steps"]) == total
    rows = read_logs(run)
    steps = [int(row["step"]) for row in rows]
    seconds = [float(row["seconds"]) for row in rows]
    assert steps == sorted(set(steps))
    assert seconds == sorted(seconds)
    assert {stopped["steps"], total} <= set(steps)
    rate = float(rows[-1]["learning_rate"])
    assert rate == pytest.approx(0.00048 * 20 / total)  # The last step's; a batch is 20 steps.
    kept = [int(p.name.split(".")[1]) for p in sorted((run / "intermediate").iterdir())]
    assert kept == list(range(100, total + 1, 100))
    from_checkpoint(run_files.model_path(run, 100))


@pytest.fixture
def small_files():
    """Processes that are started can write files of a megabyte, which no checkpoint fits in."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("small_files")
def test_a_run_that_cannot_save_says_so_and_fails(start, tmp_path):
    code, _, err = start(
        "polybeast", *MOCK, "--savedir", tmp_path, "--xpid=run", "--total_steps=60"
    ).finish()
    assert code == 1
    assert "Cannot save" in err
    assert "polybeast: error: the last steps are not saved" in err
    assert "Traceback" not in err


def test_signal_during_imports_ends_the_process(start, tmp_path):
    # The working directory comes first, so that this is the torch that is imported.
    slow = "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n"
    (tmp_path / "torch.py").write_text(slow)
    run = start("polybeast", *ENDLESS, "--savedir", tmp_path, "--xpid=run", cwd=tmp_path)
    run.wait_until((tmp_path / "begun").exists)
    family = run.family()
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.finish()
    assert code == -signal.SIGINT, err
    assert err == "Starting\n"
    nothing_left(run, family)


def test_signal_while_servers_start_ends_everything_in_order(start, tmp_path):
    run = start("polybeast", *ENDLESS, "--savedir", tmp_path, "--xpid=run")
    run.wait_until(lambda: find(run, "multiprocessing.forkserver"))
    family = run.family()
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.finish()
    assert code == 130, err
    assert "Traceback" not in err
    nothing_left(run, family)


def test_servers_started_apart_serve_only_what_they_were_started_for(start, tmp_path):
    basename = f"--pipes_basename=unix:{tmp_path}/pipe"
    servers = start("polybeast_env", "--env=Mock", "--num_servers=2", basename)
    servers.wait_until((tmp_path / "pipe.1").exists)

    def train(*flags):
        return start(
            "polybeast", *MOCK, "--savedir", tmp_path, "--num_servers=2", basename, *flags
        ).finish()

    # They are not replaced, however long a run learns from them before it knows.
    code, _, err = train("--total_steps=1e9")
    assert code == 1
    assert f"polybeast: error: Address is in use: unix:{tmp_path}/pipe." in err
    assert "Traceback" not in err

    # They serve what they were started for, and not something else.
    code, _, err = train("--no_start_servers", "--total_steps=200", "--frame_height=96")
    assert code == 1, err
    assert "it serves Mock (deepmind, gray_stack, 84 x 84), this run needs Mock (" in err
    assert "give both sides the same flags" in err
    assert "Traceback" not in err
    code, _, err = train("--no_start_servers", "--total_steps=200")
    assert code == 0, err
    family = servers.family()
    servers.process.send_signal(signal.SIGTERM)
    assert servers.finish()[0] == 143
    nothing_left(servers, family)
    assert not (tmp_path / "pipe.0").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_servers_on_a_port_and_a_learner_show_each_other_certificates(start, tmp_path):
    make_certificates(tmp_path / "tls")
    port = free_port()
    shared = [f"--tls_dir={tmp_path}/tls", f"--pipes_basename=localhost:{port}", "--num_servers=1"]
    servers = start("polybeast_env", "--env=Mock", *shared)
    servers.wait_until(lambda: is_open(port))
    _, error = run_pool(f"localhost:{port}", None, connect_timeout_s=2)
    assert "No environment server answered" in str(error)
    options = [*shared, "--no_start_servers", "--savedir", tmp_path, "--total_steps=200"]
    code, _, err = start("polybeast", *MOCK, *options).finish()
    assert code == 0, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env=PogNoFrameskip-v4"], "did you mean Pong"),
        (["--savedir=/dev/null/here"], "Cannot write to --savedir"),
        (["--mode=test", "--savedir=/nowhere"], "No checkpoint at /nowhere/latest/model.tar"),
        (["--mode=test", "--xpid=" + "a" * 300], "File name too long"),
        (["--preset=tiny"], "choose from"),
        (["--agent_type=torchbeast.models:Agent"], "does not define encode()"),
        (["--pipes_basename=:4000", "--no_start_servers"], "neither unix:PATH nor HOST:PORT"),
        (["--no_start_servers"], "needs --pipes_basename"),
        (["--ray_address=auto"], "--ray_address needs --num_servers"),
        (["--tls_dir=/nowhere"], "--tls_dir: [Errno 2] No such file or directory: '/nowhere/cert"),
        (["--total_steps=1.5"], "not a whole number: 1.5"),
        (["--learning_rate=nan"], "must be a number from 0 on"),
        (["--batch_size=8", "--max_learner_queue_size=4"], "must be at least --batch_size"),
        (["--mode=test", "--json=/none/x.json"], "--json /none/x.json: there is no directory"),
    ],
)
def test_wrong_input_is_one_line_and_starts_nothing(tmp_path, arguments, message, assert_misuse):
    savedir = [] if any("savedir" in a for a in arguments) else ["--savedir", tmp_path]
    assert_misuse(polybeast.main, [*arguments, *savedir], message)
    assert not list(tmp_path.iterdir())


def test_servers_of_an_environment_that_fails_are_not_started(capfd, monkeypatch, tmp_path):
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    basename = f"--pipes_basename=unix:{tmp_path}/pipe"
    assert polybeast_env.main(["--env=exits:Any-v0", basename]) == 1
    assert capfd.readouterr().err == ("polybeast_env: error: exits:Any-v0: it called sys.exit(3)\n")


def test_help_answers_without_torch():
    code = (
        "import contextlib, sys\n"
        "from torchbeast import polybeast as command\n"
        "with contextlib.suppress(SystemExit): command.main(['--help'])\n"
        "assert 'torch' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "--env" in out.stdout


def test_every_flag_of_2019_is_there():
    flags = vars(polybeast.make_parser().parse_args([]))
    names = (
        "pipes_basename mode xpid start_servers env disable_checkpoint savedir num_actors "
        "total_steps batch_size unroll_length num_learner_threads num_inference_threads "
        "disable_cuda num_actions use_lstm max_learner_queue_size use_popart entropy_cost "
        "baseline_cost discounting reward_clipping learning_rate alpha momentum epsilon "
        "grad_norm_clipping beta write_profiler_trace save_model_every_nsteps num_episodes "
        "intermediate_model_id actions seed"
    )
    assert set(names.split()) <= set(flags)
