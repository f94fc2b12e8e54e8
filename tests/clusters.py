"""Runs whose environment servers are on a Ray cluster."""

import csv

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
