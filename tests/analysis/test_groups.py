import pytest

from tests.analysis.written_runs import find, write_run
from torchbeast.analysis.groups import describe_differences, group_runs
from torchbeast.analysis.runs import find_runs


def test_runs_that_differ_in_their_seed_only_are_grouped(savedir):
    groups = find(savedir).groups
    assert [str(group) for group in groups] == ["popart (2 seeds)", "clipped"]
    assert describe_differences(groups) == [
        "--reward_clipping: none in popart; abs_one in clipped",
        "--use_popart: True in popart; False in clipped",
    ]


def test_runs_of_one_seed_are_not_called_seeds(tmp_path):
    paths = [write_run(tmp_path / f"two-{i}", [(1, 1, 1, 1)], env="two", seed=1) for i in (1, 2)]
    (group,) = group_runs(find_runs(paths))
    assert str(group) == "two (2 runs)"


def test_seeds_of_several_machines_are_grouped_and_that_is_said(tmp_path):
    machines = [{"cores": 1}, {"cores": 4, "num_servers": None}, {"cores": 1, "num_servers": 2}]
    paths = [
        write_run(tmp_path / f"six-s{seed}", [(1, 1, 1, 1)], seed=seed, env="Pong", **machine)
        for seed, machine in enumerate(machines, 1)
    ]
    runs = find_runs(paths)
    assert [str(group) for group in group_runs(runs, "hours")] == ["six-s1", "six-s2", "six-s3"]
    (group,) = group_runs(runs)
    assert len(group.runs) == 3
    assert describe_differences([group]) == [
        "--cores: 1 in six-s1, six-s3; 4 in six-s2",
        "--num_servers: not set in six-s1, six-s2; 2 in six-s3",
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("six-s1", "six-s2"), "six"),
        (("six_seed_1", "six_seed_12"), "six"),
        (("one", "other"), "one"),
        (("1", "2"), "1"),
    ],
)
def test_a_group_is_named_without_the_seeds(tmp_path, names, expected):
    paths = [write_run(tmp_path / name, [(1, 1, 1, 1)], env="Pong") for name in names]
    (group,) = group_runs(find_runs(paths))
    assert group.name == expected
