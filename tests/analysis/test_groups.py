import json

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
        "--value_heads: game in popart; one in clipped",
    ]


def test_two_spellings_of_one_experiment_are_one_group(tmp_path):
    spellings = [
        {"use_popart": True, "reward_clipping": None, "env": "Pong,Breakout", "preset": "small"},
        {"use_popart": True, "reward_clipping": "none", "env": "PongNoFrameskip-v4,Breakout"},
        {"use_popart": True, "value_heads": "one", "env": "two", "preset": "many"},
        {"use_popart": True, "lstm_reset": "life", "num_actors": 16, "env": "two"},
    ]
    paths = [
        write_run(tmp_path / f"two-s{seed}", [(1, 1, 1, 1)], **flags)
        for seed, flags in enumerate(spellings, 1)
    ]
    (group,) = group_runs(find_runs(paths))
    assert len(group.runs) == 4


def test_runs_of_one_seed_are_not_called_seeds(tmp_path):
    paths = [write_run(tmp_path / f"two-{i}", [(1, 1, 1, 1)], env="two", seed=1) for i in (1, 2)]
    (group,) = group_runs(find_runs(paths))
    assert str(group) == "two (2 runs)"


def test_environments_that_share_a_name_are_two_experiments(tmp_path):
    paths = []
    for seed, game in enumerate(("PongNoFrameskip-v4", "my.module:Pong-v0"), 1):
        paths.append(write_run(tmp_path / f"pong-s{seed}", [(1, 1, 1, 1)], seed=seed))
        meta = {"args": {"seed": seed}, "tasks": [game, "BreakoutNoFrameskip-v4"]}
        (paths[-1] / "meta.json").write_text(json.dumps(meta))
    assert len(group_runs(find_runs(paths))) == 2


def test_flags_of_popart_do_not_count_without_it(tmp_path):
    spellings = [{}, {"value_heads": "one", "beta": 0.1}]
    paths = [
        write_run(tmp_path / f"plain-s{seed}", [(1, 1, 1, 1)], env="two", **flags)
        for seed, flags in enumerate(spellings, 1)
    ]
    assert len(group_runs(find_runs(paths))) == 1


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
