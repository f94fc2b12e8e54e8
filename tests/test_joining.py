"""A learner as users start it, with hosts that join it."""

import csv
import re
import signal

from tests.processes import all_end, wait_until
from torchbeast import polybeast

FAST = ["--agent_type=atari", "--unroll_length=10", "--batch_size=2", "--env=Mock"]


def read_hosts(run):
    path = run / "hosts.csv"
    if not path.exists():
        return {}
    with open(path) as file:
        rows = list(csv.DictReader(file))
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    return {row["name"]: row for row in last}


def test_steps_of_all_hosts_add_up_to_those_of_the_run(start, tmp_path):
    learner = start(
        "polybeast", *FAST, "--num_actors=4", "--num_servers=2", "--join_address=localhost:0",
        "--savedir", tmp_path, "--xpid=run", "--total_steps=1e9", "--disable_checkpoint",
    )  # fmt: skip
    run, log = tmp_path / "run", tmp_path / "run" / "out.log"
    wait_until(lambda: log.exists() and "Hosts can join at" in log.read_text())
    (port,) = re.findall(r"port (\d+): 2 places", log.read_text())
    hosts = {
        name: start(
            "polybeast_env", f"--join=localhost:{port}", f"--host_name={name}", "--num_servers=1"
        )
        for name in "ab"
    }
    wait_until(lambda: len(read_hosts(run)) == 2)
    hosts["a"].process.send_signal(signal.SIGTERM)
    wait_until(lambda: read_hosts(run)["a"]["environments"] == "0")
    assert read_hosts(run)["b"]["environments"] == "2"
    family = learner.family()
    learner.process.send_signal(signal.SIGINT)
    code, out, err = learner.finish()
    assert code == 130, err
    assert "host a: away" in err
    assert "host b: 2 environments" in err
    all_end(family)
    # It stays for the learner's next run.
    assert any("has ended; trying again" in line for line in hosts["b"].process.stdout)
    # Some rollouts still waited for the learner: at most a batch in its queue and one beside it.
    learned = int(re.search(r"([\d,]+) steps; run in", out)[1].replace(",", ""))
    delivered = sum(int(row["steps"]) for row in read_hosts(run).values())
    assert learned <= delivered <= learned + 2 * 2 * 10 + 4 * 10


def test_flags_that_contradict_each_other_are_refused(assert_misuse, tmp_path):
    run = ["--savedir", tmp_path, *FAST]
    assert_misuse(
        polybeast.main,
        [*run, "--join_address=localhost:0", "--pipes_basename=unix:/tmp/x"],
        "--join_address and --env_addresses exclude --pipes_basename",
    )
    assert_misuse(
        polybeast.main,
        [*run, "--join_address=0.0.0.0:4000"],
        "--join_address 0.0.0.0:4000 is beyond this machine: it needs --tls_dir",
    )
    assert_misuse(
        polybeast.main,
        [*run, "--join_address=0.0.0.0:4000", "--tls_dir", tmp_path],
        "--tls_dir: ",
    )
    assert not any(tmp_path.iterdir())
