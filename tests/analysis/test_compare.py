import re
from pathlib import Path

from PIL import Image

from tests.analysis.written_runs import find, write_run, write_table
from tests.conftest import ROOT
from torchbeast.analysis import compare
from torchbeast.envs.human_scores import PUBLISHED
from torchbeast.records.scores import SCORE_FIELDS


def test_a_run_that_ended_before_has_no_return(savedir):
    common = find(savedir)
    popart, clipped = common.groups
    assert common.returns_at(popart, "Pong", 298).tolist() == [14.6]
    assert common.returns_at(clipped, "Pong", 298).tolist() == []
    assert [run.name for run in common.incomplete(298)] == ["popart-2", "clipped"]
    assert "No score there in some game: clipped" in compare.format_comparison(common, 120)
    lines = compare.format_comparison(common, 298)
    assert "No score there in some game: popart-2, clipped" in lines
    table = {line.strip().split("  ")[0]: line.split() for line in lines if line}
    assert table["Pong"][1:] == ["-20.70", "14.60", "14.60", "-"]
    assert table["mean"][1:] == ["0.0%", "100.0%", "100.0%", "-"]
    assert table["games ahead of random play"][-4:] == ["2", "of", "2", "-"]
    lines = compare.format_comparison(common, 200)
    ahead = [line.split()[-3:] for line in lines if "ahead of popart" in line]
    assert ahead == [["1", "of", "2"]]  # Breakout: 30.5 against the mean of 1.7 and 30.5.
    # A run may end a little before it should.
    assert common.returns_at(clipped, "Pong", 252).tolist() == [14.6]


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
    common = find(savedir, names=[f"popart-{seed}" for seed in (1, 2, 3)])
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


def test_an_evaluation_after_the_last_row_of_logs_counts(savedir, capsys):
    row = {**dict.fromkeys(SCORE_FIELDS, 1), "game": "Pong", "policy": "sampled", "seconds": 1200}
    write_table(savedir / "popart-1" / "scores.csv", SCORE_FIELDS, row.values())
    assert compare.main([str(savedir / "popart-1"), "--by=hours"]) == 0
    assert re.search(r"^Pong .* 1\.00$", capsys.readouterr().out, re.MULTILINE)


def test_wrong_input_is_one_line(savedir, tmp_path, assert_misuse):
    runs = [savedir / "popart-1", savedir / "clipped"]
    assert_misuse(compare.main, [tmp_path / "none"], "is not a run")
    assert_misuse(compare.main, [*runs, "--summary"], "--summary needs --output")
    assert_misuse(compare.main, [*runs, "--table=scores.csv"], "No scores.csv in popart-1")
    other = write_run(tmp_path / "other", [(1, 1, 1, 1)])
    (other / "logs.csv").write_text("step,seconds,mean_episode_return/Alien\n1,1,1\n")
    assert_misuse(compare.main, [*runs, other], "no game in common")


def test_the_table_of_57_games_is_what_its_command_prints(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = Path("docs/atari57.md").read_text()
    block = re.search(r"analysis\.compare ([^\n]*)\n\n```text\n(.*?)```", page, re.DOTALL)
    command, table = block.groups()
    assert compare.main(command.split()) == 0
    assert capsys.readouterr().out == table
