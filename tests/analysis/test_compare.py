import json
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import ROOT
from torchbeast.analysis import compare
from torchbeast.analysis.compare import describe_differences, find_common, group_runs
from torchbeast.analysis.runs import find_runs
from torchbeast.envs.human_scores import PUBLISHED
from torchbeast.records.scores import SCORE_FIELDS

# Return of a random agent and of a human in Pong: -20.7 and 14.6; in Breakout 1.7 and 30.5.
LOG_FIELDS = ["step", "seconds", *(f"mean_episode_return/{g}" for g in ("Pong", "Breakout"))]


def write_table(path, *rows):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


def write_run(path, logs, **flags):
    """Writes what a run with these flags and rows of logs.csv leaves behind."""
    path.mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps({"args": flags}))
    write_table(path / "logs.csv", LOG_FIELDS, *logs)
    return path


@pytest.fixture
def savedir(tmp_path):
    """Two seeds with PopArt, one without; logs.csv only."""
    flags = {"total_steps": 300, "use_popart": True}
    logs = [(100, 360, -20.7, 1.7), (200, 720, -3.05, 1.7), (300, 1080, 14.6, 30.5)]
    write_run(tmp_path / "popart-1", logs, seed=1, xpid="popart-1", **flags)
    write_run(
        tmp_path / "popart-2",
        [(100, 360, -20.7, 1.7), (200, 1800, 14.6, 30.5)],
        seed=2,
        xpid="popart-2",
        **flags,
    )
    write_run(
        tmp_path / "clipped",
        [(150, 720, -20.7, 30.5), (250, 1080, 14.6, 30.5)],
        **{**flags, "use_popart": False},
    )
    return tmp_path


def find(savedir, unit="steps", **options):
    runs = find_runs([savedir / name for name in ("popart-1", "popart-2", "clipped")])
    return find_common(group_runs(runs), unit=unit, policy="sampled", **options)


def test_runs_that_differ_in_their_seed_only_are_grouped(savedir):
    groups = find(savedir).groups
    assert [str(group) for group in groups] == ["popart (2 seeds)", "clipped"]
    assert describe_differences(groups) == [
        "--reward_clipping: none in popart; abs_one in clipped",
        "--use_popart: True in popart; False in clipped",
        "--value_heads: game in popart; not set in clipped",
    ]


def test_two_spellings_of_one_experiment_are_one_group(tmp_path):
    spellings = [
        {"use_popart": True, "reward_clipping": None, "env": "Pong,Breakout", "preset": "small"},
        {"use_popart": True, "reward_clipping": "none", "env": "PongNoFrameskip-v4,Breakout"},
        {"use_popart": True, "value_heads": "one", "env": "two", "preset": "many"},
    ]
    paths = [
        write_run(tmp_path / f"two-s{seed}", [(1, 1, 1, 1)], **flags)
        for seed, flags in enumerate(spellings, 1)
    ]
    (group,) = group_runs(find_runs(paths))
    assert len(group.runs) == 3


def test_seeds_of_several_machines_are_grouped_and_that_is_said(tmp_path):
    # An earlier version had no --pool_threads.
    machines = [{"cores": 1}, {"cores": 4, "pool_threads": None}, {"cores": 1, "pool_threads": 2}]
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
        "--pool_threads: not set in six-s1, six-s2; 2 in six-s3",
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


def test_returns_are_the_last_records_at_the_same_steps_or_hours(savedir):
    common = find(savedir)
    popart, clipped = common.groups
    assert common.range(common.groups) == (150, 200)
    assert common.points(popart, 9).tolist() == [100, 200]
    assert common.points(clipped, 1).tolist() == [150]
    assert common.returns(popart, "Pong", 200).tolist() == [-3.05, 14.6]
    assert common.returns(clipped, "Pong", 200).tolist() == [-20.7]
    # Evaluations come a little behind a multiple of steps.
    assert common.returns(clipped, "Pong", 249).tolist() == [14.6]
    by_hours = find(savedir, "hours")
    assert by_hours.range(common.groups) == (0.2, 0.3)
    assert by_hours.returns(popart, "Pong", 0.3).tolist() == [14.6, -20.7]


def test_a_run_that_ended_before_has_no_return(savedir):
    common = find(savedir)
    popart, clipped = common.groups
    assert common.returns(popart, "Pong", 298).tolist() == [14.6]
    assert common.returns(clipped, "Pong", 298).tolist() == []
    assert [run.name for run in common.ended(298)] == ["popart-2", "clipped"]
    assert "No score yet in some game: clipped" in compare.format_comparison(common, 120)
    lines = compare.format_comparison(common, 298)
    assert "Left out, because they end before: popart-2, clipped" in lines
    table = {line.strip().split("  ")[0]: line.split() for line in lines if line}
    assert table["Pong"][1:] == ["-20.70", "14.60", "14.60", "-"]
    assert table["mean"][1:] == ["0.0%", "100.0%", "100.0%", "-"]
    assert table["games ahead of random play"][-4:] == ["2", "of", "2", "-"]
    lines = compare.format_comparison(common, 200)
    ahead = [line.split()[-3:] for line in lines if "ahead of popart" in line]
    assert ahead == [["1", "of", "2"]]  # Breakout: 30.5 against the mean of 1.7 and 30.5.
    # A run may end a little before it should.
    assert common.returns(clipped, "Pong", 252).tolist() == [14.6]


def test_a_group_without_a_finished_game_has_no_curve(savedir, tmp_path, capsys):
    new = write_run(tmp_path / "new", [(150, 720, "", ""), (250, 1080, "", "")], env="Pong")
    arguments = [str(new), str(savedir / "clipped"), "--output", str(tmp_path / "new.png")]
    assert compare.main([*arguments, "--by=hours"]) == 0
    assert (tmp_path / "new.png").stat().st_size > 10_000
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("At 0.30 hours")
    assert lines[-1] == str(tmp_path / "new.png")
    table = {line.strip().split("  ")[0]: line.split() for line in lines}
    assert table["Pong"][3:] == ["-", "14.60"]
    assert table["mean"][3:] == ["-", "100.0%"]


def test_the_table_has_statistics_of_the_common_games(savedir):
    common = find(savedir)
    lines = compare.format_comparison(common, 200)
    assert lines[0].startswith("At 200 agent steps: mean return of the last 100 full games")
    table = {line.strip().split("  ")[0]: line.split() for line in lines if line}
    assert table["Pong"][1:] == ["-20.70", "14.60", "5.78", "-20.70"]
    # Games: means 0.75 and 0.5; clipped 0 and 1. All four scores 0, 0.5, 1, 1: the middle half
    # is 0.5 and 1. Of two scores none is left out.
    assert table["mean"][3:] == ["62.5%", "50.0%"]
    assert table["median"][3] == "62.5%"
    assert table["interquartile mean"][-2:] == ["75.0%", "50.0%"]
    assert "bootstrap interval" not in "\n".join(lines)


def test_three_seeds_have_an_interval(savedir, tmp_path):
    logs = [(100, 360, -20.7, 1.7), (200, 1800, 20.0, 30.5)]
    flags = {"total_steps": 300, "use_popart": True, "seed": 3, "xpid": "popart-3"}
    write_run(tmp_path / "popart-3", logs, **flags)
    runs = find_runs([savedir / f"popart-{seed}" for seed in (1, 2, 3)])
    common = find_common(group_runs(runs), unit="steps", policy="sampled")
    lines = compare.format_comparison(common, 200)
    table = {line.strip().split("  ")[0]: line.split() for line in lines if line}
    assert table["Pong"][3:] == ["10.52", "[-3.05,", "20.00]"]
    assert "95% bootstrap interval over seeds" in "\n".join(lines)


def test_many_games_of_one_seed_have_an_interval_over_games(tmp_path, capsys):
    games = list(PUBLISHED)[:12]
    run = write_run(tmp_path / "many", [], seed=1)
    # Half of the games as by random play, half as a human plays.
    returns = [PUBLISHED[game][i % 2] for i, game in enumerate(games)]
    fields = ["step", "seconds", *(f"mean_episode_return/{game}" for game in games)]
    write_table(run / "logs.csv", fields, (100, 1, *returns), (200, 2, *returns))
    picture = tmp_path / "summary.png"
    assert compare.main([str(run), "--summary", "--output", str(picture)]) == 0
    output = capsys.readouterr().out
    (mean,) = [line.split() for line in output.splitlines() if line.startswith("  mean ")]
    low, high = (float(text.strip("[,]%")) for text in mean[-2:])
    assert mean[3] == "50.0%"
    assert 15 < low < 35
    assert 65 < high < 85
    assert "95% bootstrap interval over the 12 games" in output
    with Image.open(picture) as image:
        assert image.width > 3 * image.height  # One row of panels.


def evaluate(savedir, *names):
    for name in names:
        rows = [
            (step, 10 * step, game, policy, 5, mean, 0, 0, 0, 100, "")
            for step in (100, 201)
            for game in ("Pong", "Breakout")
            for policy, mean in (("greedy", 20 + step), ("sampled", 10 + step))
        ]
        # The last evaluation was interrupted after one game and a part of a row.
        rows += [(300, 3000, "Pong", "sampled", 5, 1000, 0, 0, 0, 100, ""), (300, 3000, "Brea")]
        write_table(savedir / name / "scores.csv", SCORE_FIELDS, *rows)


def test_evaluations_are_compared_where_every_run_has_them(savedir):
    evaluate(savedir, "popart-1", "popart-2")
    assert find(savedir).source.table == "logs.csv"
    evaluate(savedir, "clipped")
    common = find(savedir)
    assert common.source.table == "scores.csv"
    assert common.range(common.groups) == (100, 201)
    assert common.returns(common.groups[1], "Pong", 200).tolist() == [211]
    greedy = find_common(common.groups, unit="steps", policy="greedy")
    assert greedy.returns(common.groups[1], "Pong", 200).tolist() == [221]
    assert find(savedir, table="logs.csv").returns(common.groups[1], "Pong", 200).size == 1


def test_an_evaluation_after_the_last_row_of_logs_counts(savedir, capsys):
    row = {**dict.fromkeys(SCORE_FIELDS, 1), "game": "Pong", "policy": "sampled", "seconds": 1200}
    write_table(savedir / "popart-1" / "scores.csv", SCORE_FIELDS, row.values())
    assert compare.main([str(savedir / "popart-1"), "--by=hours"]) == 0
    assert "Left out" not in capsys.readouterr().out


def test_wrong_input_is_one_line(savedir, tmp_path, assert_misuse):
    runs = [savedir / "popart-1", savedir / "clipped"]
    assert_misuse(compare.main, [tmp_path / "none"], "is no run")
    assert_misuse(compare.main, [*runs, "--table=scores.csv"], "No scores.csv in popart-1")
    assert_misuse(compare.main, [*runs, "--policy=greedy"], "training samples its actions")
    other = write_run(tmp_path / "other", [(1, 1, 1, 1)])
    (other / "logs.csv").write_text("step,seconds,mean_episode_return/Alien\n1,1,1\n")
    assert_misuse(compare.main, [*runs, other], "no game in common")


def test_the_table_of_57_games_is_what_its_command_prints(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = Path("docs/atari57.md").read_text()
    block = re.search(r"analysis\.compare (.*)\n\n```text\n(.*?)```", page, re.DOTALL)
    command, table = block.groups()
    assert compare.main(command.split()) == 0
    assert capsys.readouterr().out == table
