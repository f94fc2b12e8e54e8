"""Runs whose environment servers are on a Ray cluster."""

import csv

import pytest

from tests.processes import wait_until

SMALL = ["--fixed_input_scale", "--unroll_length=10", "--batch_size=2"]
MOCK = [*SMALL, "--agent_type=atari", "--env=Mock"]


def hosts(run):
    """The last rows of hosts.csv, by host: environments and steps."""
    path = run / "hosts.csv"
    if not path.exists():
        return {}
    with open(path) as file:
        rows = list(csv.DictReader(file))
    return {row["name"]: (int(row["environments"]), int(row["steps"])) for row in rows}


def wait_for_hosts(learner, run, condition):
    """Waits until hosts.csv is so. Returns it."""
    wait_until(lambda: learner.process.poll() is not None or condition(hosts(run)), 120)
    if learner.process.poll() is not None:
        pytest.fail(learner.finish()[2])
    return hosts(run)
