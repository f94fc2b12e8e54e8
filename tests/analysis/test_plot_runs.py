import numpy as np
import pytest
from PIL import Image

from torchbeast.analysis import plot_runs
from torchbeast.analysis.runs import find_runs

FIELDS = "step,seconds,mean_episode_return/Pong,std_episode_return/Pong,mu/Pong,sigma/Pong"


def write_run(path, rows, fields=FIELDS):
    path.mkdir(parents=True)
    (path / "logs.csv").write_text("\n".join([fields, *rows]) + "\n")


@pytest.fixture
def savedir(tmp_path):
    write_run(tmp_path / "a", ["10,60,,,0,1", "20,3600,-20,1,0.5,2", "30,7200,-19,2,0.6,3"])
    write_run(tmp_path / "b", ["10,60,-21,0.5,0,1", "30,7200,5,2,0.6,3"])
    (tmp_path / "latest").symlink_to("a")
    return tmp_path


def test_a_curve_begins_with_the_first_full_game(savedir):
    runs = find_runs([savedir])
    assert [run.name for run in runs] == ["a", "b"]
    curve = runs[0].curve("Pong")
    assert curve.steps.tolist() == [20, 30]
    assert curve.hours.tolist() == [1, 2]
    assert curve.mean.tolist() == [-20, -19]
    assert runs[0].moments("Pong").std.tolist() == [1, 2, 3]


def test_a_run_without_records_does_not_hide_the_others(savedir, caplog, assert_misuse):
    write_run(savedir / "new", [])
    assert [run.name for run in find_runs([savedir])] == ["a", "b"]
    assert "new is left out: it has no records yet" in caplog.text
    assert_misuse(plot_runs.main, [str(savedir / "new")], "new/logs.csv has no records yet")
    assert_misuse(plot_runs.main, [str(savedir), str(savedir / "new")], "has no records yet")
    assert find_runs([]) == []


def test_what_cannot_be_drawn_is_misuse(savedir, assert_misuse):
    write_run(savedir / "short", ["10,60,,,0,1"])
    assert_misuse(plot_runs.main, [str(savedir / "short")], "The runs have no scores yet")
    picture = str(savedir / "curves.png")
    assert_misuse(plot_runs.main, [str(savedir), "--output", picture], "must be a directory")


def test_draws_against_steps_and_hours_and_popart(savedir, capsys):
    assert plot_runs.main([str(savedir), "--output", str(savedir / "plots")]) == 0
    paths = capsys.readouterr().out.split()
    assert [path.rsplit("/", 1)[1] for path in paths] == [
        "returns_by_steps.png",
        "returns_by_hours.png",
        "popart.png",
    ]
    for path in paths:
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 5


def test_wrong_input_is_one_line_and_exit_code_2(savedir, tmp_path, assert_misuse):
    (tmp_path / "empty").mkdir()
    assert_misuse(plot_runs.main, [tmp_path / "empty"], "is not a run: it has no logs.csv")
    assert_misuse(plot_runs.main, [tmp_path / "none"], "is not a run: no such directory")
    assert_misuse(plot_runs.main, [savedir, "--games=Breakout"], "Breakout")
