"""Tables of several shipped agents."""

import json
from pathlib import Path

import numpy as np
import pytest

from tools import agent_tables
from tools.shipped import scoring, tables
from torchbeast.analysis.runs import Curve

MODELS = Path(__file__).parents[2] / "models"
PONG, INVADERS, CARNIVAL = (f"{g}NoFrameskip-v4" for g in ("Pong", "SpaceInvaders", "Carnival"))


def write_agent(path, **returns):
    """An agent that played games; by short name of the game: its sampled returns."""
    path.mkdir(parents=True)
    games = {
        f"{game}NoFrameskip-v4": {"greedy": [0.0] * len(values), "sampled": values}
        for game, values in returns.items()
    }
    document = {"model": "100", "seed": 100, "games": games}
    (path / scoring.FILE).write_text(json.dumps(document))
    return str(path)


def write_run(path, game, rows):
    path.mkdir(parents=True)
    lines = [f"step,seconds,mean_episode_return/{game}", *(f"{s},1,{x}" for s, x in rows)]
    (path / "logs.csv").write_text("\n".join(lines) + "\n")
    return str(path)


def cells(table):
    """Rows by the text of their first cells, without the line below the header."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return [rows[0], *rows[2:]]


@pytest.fixture
def kinds(tmp_path):
    single = [
        write_agent(tmp_path / "Pong", Pong=[20.0, 21.0]),
        write_agent(tmp_path / "SpaceInvaders", SpaceInvaders=[500.0, 700.0]),
    ]
    both = write_agent(
        tmp_path / "Both", Pong=[10.0, 12.0], SpaceInvaders=[900.0, 950.0], Carnival=[5.0, 6.0]
    )
    return [f"one game={','.join(single)}", f"PopArt={both}"]


def test_agents_are_listed_with_how_they_were_trained(tmp_path):
    output = tmp_path / "agents.md"
    paths = [str(MODELS / name) for name in ("DemonAttack", "MultiTaskPopArt")]
    assert agent_tables.main(["agents", *paths, "--output", str(output)]) == 0
    header, one, six = cells(output.read_text())
    assert header == ["agent", "network", "games", "steps", "target", "PopArt", "rewards", "seed"]
    assert one[:3] == ["DemonAttack", "IMPALA ResNet", "DemonAttack"]
    assert one[3:] == ["2,500,000", "2,500,000", "no", "clipped to [-1, 1]", "1"]
    assert six[0] == "MultiTaskPopArt"
    assert six[2].startswith("6: AirRaid, Carnival, ")
    assert six[5:7] == ["yes", "as they are"]


def test_a_column_without_a_name_has_that_of_its_agent(kinds, tmp_path):
    path = kinds[1].partition("=")[2]
    assert agent_tables.main(["scores", path, "--output", str(tmp_path / "scores.md")]) == 0
    assert cells((tmp_path / "scores.md").read_text())[0][:2] == ["game", "Both"]


def test_scores_have_a_column_per_kind_of_agent(kinds, tmp_path, capsys):
    output = tmp_path / "scores.md"
    arguments = ["scores", *kinds, "--difference", "PopArt", "one game", "--output", str(output)]
    assert agent_tables.main(arguments) == 0
    assert capsys.readouterr().out == output.read_text()
    header, pong, invaders, carnival, median = cells(output.read_text())
    assert header == ["game", "one game", "PopArt", "random", "human", "PopArt minus one game"]
    assert pong == ["Pong", "20.5 [20.0, 21.0]", "11.0 [10.0, 12.0]", "-20.7", "14.6", pong[-1]]
    assert pong[-1].startswith("-9.5 [")
    assert invaders[-1].startswith("325.0 [")
    assert carnival[1] == carnival[-1] == ""
    assert carnival[0] == "Carnival"
    assert carnival[4] == ""  # No human score is published.
    # Of the two games that both kinds know: (116.7 + 29.7) / 2.
    assert median[:2] == ["human-normalised median", median[1]]
    assert median[1].startswith("73 [")


def test_scores_are_shown_of_the_games_that_are_chosen(kinds, tmp_path):
    output = tmp_path / "scores.md"
    assert agent_tables.main(["scores", *kinds, "--games=Pong", "--output", str(output)]) == 0
    assert [row[0] for row in cells(output.read_text())] == ["game", "Pong"]


def test_agents_of_one_name_in_two_directories_both_count(tmp_path):
    pong = write_agent(tmp_path / "a" / "Agent", Pong=[20.0])
    invaders = write_agent(tmp_path / "b" / "Agent", SpaceInvaders=[500.0])
    output = tmp_path / "scores.md"
    assert agent_tables.main(["scores", f"x={pong},{invaders}", "--output", str(output)]) == 0
    games = [row[0] for row in cells(output.read_text())]
    assert games == ["game", "Pong", "SpaceInvaders", "human-normalised median"]


def test_the_difference_has_an_interval_over_the_games_of_both():
    same = np.full(20, 3.0)
    assert tables.format_difference(same + 1, same) == "1.0 [1.0, 1.0]"
    wide = np.array([-10.0, 10.0] * 20)
    text = tables.format_difference(wide + 1, wide)
    low, high = (float(x) for x in text.split("[")[1].rstrip("]").split(","))
    assert -6 < low < -1
    assert 2 < high < 8


def test_curves_are_shown_at_equal_steps_beside_references(tmp_path, capsys):
    run = write_run(tmp_path / "Pong", "Pong", [(100, -20), (200, -10), (290, 0)])
    paper = tmp_path / "paper.csv"
    paper.write_text(f"env,agent_steps,return_mean\n{PONG},100,-19\n{PONG},300,1\n")
    own = tmp_path / "own.csv"
    own.write_text(f"env,agent_steps,return_mean\n{INVADERS},100,5\n")
    output = tmp_path / "curves.md"
    arguments = ["curves", run, "--at", "50", "150", "300", "400", "--output", str(output)]
    arguments += ["--reference", str(paper), "--reference", str(own)]
    assert agent_tables.main(arguments) == 0
    assert cells(output.read_text()) == [
        ["game", "agent steps", "Pong", "paper", "own"],
        ["Pong", "50", "", "", ""],
        ["Pong", "150", "-15.0", "-14.0", ""],
        ["Pong", "300", "0.0", "1.0", ""],
        ["Pong", "400", "", "", ""],
    ]


@pytest.mark.parametrize(("count", "value"), [("game", "10.0"), ("all", "5.0")])
def test_curves_of_several_games_are_shown_at_steps_in_a_game_or_in_all(tmp_path, count, value):
    one = write_run(tmp_path / "Pong", "Pong", [(100, -20), (200, -10)])
    two = tmp_path / "Two"
    two.mkdir()
    (two / "logs.csv").write_text(
        "step,seconds,mean_episode_return/Pong,steps/Pong,mean_episode_return/Qbert,steps/Qbert\n"
        "200,1,5,100,1,100\n400,2,10,200,2,200\n"
    )
    output = tmp_path / "curves.md"
    arguments = ["curves", f"alone={one}", str(two), "--count", count, "--at", "200"]
    assert agent_tables.main([*arguments, "--output", str(output)]) == 0
    header, pong, qbert = cells(output.read_text())
    assert header == ["game", "agent steps", "alone", "Two"]
    assert pong == ["Pong", "200", "-10.0", value]
    assert qbert[:3] == ["Qbert", "200", ""]


def test_a_run_whose_steps_in_a_game_are_unknown_has_no_value(tmp_path):
    (tmp_path / "logs.csv").write_text(
        "step,seconds,mean_episode_return/A,mean_episode_return/B\n1,1,2,3\n"
    )
    output = tmp_path / "curves.md"
    assert agent_tables.main(["curves", str(tmp_path), "--at", "1", "--output", str(output)]) == 0
    assert [row[2] for row in cells(output.read_text())[1:]] == ["", ""]


def test_a_curve_without_records_has_no_value():
    empty = np.empty(0)
    assert tables.format_value(Curve("", empty, None, empty, empty), 10) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scores", "a={tmp}"], "has no games: run python tools/model_card.py"),
        (["scores", "a={kind},{kind}2"], "is the second agent of Pong"),
        (["scores", "a={kind}", "--difference", "a", "b"], "No column is called b: a"),
        (["scores", "a={kind}", "--games", "Breakout"], "a has no games of Breakout"),
        (["curves", "{tmp}", "--at", "5"], "is no run"),
        (["agents", "{tmp}"], "has no model.tar"),
        (["curves", "a={two},{two}", "--at", "5"], "two is the second agent of A"),
    ],
)
def test_misuse_is_told_in_a_line(arguments, message, tmp_path, assert_misuse):
    kind = write_agent(tmp_path / "A", Pong=[1.0])
    write_agent(tmp_path / "A2", Pong=[1.0])
    two = tmp_path / "two"
    two.mkdir()
    (two / "logs.csv").write_text("step,mean_episode_return/A,mean_episode_return/B\n1,2,3\n")
    output = ["--output", str(tmp_path / "table.md")]
    arguments = [a.format(tmp=tmp_path, kind=kind, two=two) for a in arguments]
    assert_misuse(agent_tables.main, [*arguments, *output], message)
    assert not (tmp_path / "table.md").exists()
