"""The claims about PopArt are tested as docs/popart.md says, here on records with known scores."""

import json

import numpy as np
import pytest

from tests.analysis.written_runs import write_table
from tests.conftest import ROOT
from tools import popart_claims
from torchbeast.analysis.runs import RunRecords
from torchbeast.envs.human_scores import find_reference

GAMES = ("AirRaid", "Carnival", "DemonAttack", "NameThisGame", "Pong", "SpaceInvaders")


def write_run(directory, name, figures):
    """Writes a run that ends at shares ``figures`` of 100 points above random play."""
    run = directory / name
    run.mkdir(parents=True)
    names = [f"mean_episode_return/{game}" for game in figures]
    ends = [find_reference(game).random + 100 * share for game, share in figures.items()]
    rows = [("step", "seconds", *names), (100, 1, *[0] * len(names)), (200, 2, *ends)]
    write_table(run / "logs.csv", *rows)
    (run / "meta.json").write_text(json.dumps({"args": {}}))


@pytest.fixture
def records(tmp_path):
    """Agents of one game end at 1; ``write`` adds seeds of an arm."""
    for game in GAMES:
        write_run(tmp_path, f"single-{game}-s1", {game: 1.0})

    def write(arm, *figures, **better):
        for seed, figure in enumerate(figures, 1):
            shares = dict.fromkeys(GAMES, figure)
            write_run(tmp_path, f"{arm}-s{seed}", shares | better)

    write.directory = tmp_path
    return write


def judge(records):
    return popart_claims.judge(popart_claims.read_scores(records.directory), "raw-popart", "raw")


def test_welchs_interval_is_that_of_one_sample_where_the_other_has_no_spread():
    # Two degrees of freedom: the 97.5 % point of t is 4.303.
    half = 4.303 / 3**0.5
    interval = popart_claims.welch_interval(np.array([1, 2, 3]), np.zeros(3))
    assert interval == pytest.approx((2 - half, 2 + half), abs=1e-3)


def test_the_page_has_the_tables_that_are_printed(monkeypatch, capsys, tmp_path):
    pictures = tmp_path / "arms.png", tmp_path / "curves.png"
    arguments = ["--output", str(pictures[0]), "--curves", str(pictures[1])]
    monkeypatch.setattr("sys.argv", ["popart_claims", *arguments])
    assert popart_claims.main() == 0
    *lines, first, second = capsys.readouterr().out.splitlines()
    tables = "\n".join(lines).split("\n\n")
    page = (ROOT / "docs" / "popart.md").read_text()
    assert len(tables) == 3
    assert all(f"\n\n{table}\n\n" in page for table in tables)
    assert (first, second) == (*map(str, pictures),)
    assert all(picture.stat().st_size > 10_000 for picture in pictures)


def test_a_claim_passes_where_all_seeds_are_ahead(records):
    records("raw-popart", 0.6, 0.7, 0.8)
    records("raw", 0.1, 0.2, 0.3)
    claim = judge(records)
    assert claim.difference == pytest.approx(0.5)
    assert claim.ahead == 6
    assert claim.holds


def test_a_claim_fails_where_seeds_overlap(records):
    records("raw-popart", 0.1, 0.5, 0.9)
    records("raw", 0.0, 0.4, 0.8)
    claim = judge(records)
    assert claim.low < 0 < claim.high
    assert not claim.holds


def test_a_claim_fails_with_three_games_ahead(records):
    three = {"AirRaid": 0.9, "Carnival": 0.9, "Pong": 0.9}
    records("raw-popart", 0.6, 0.6, 0.6)
    records("raw", 0.1, 0.1, 0.1, **three)
    claim = judge(records)
    assert claim.low > 0
    assert claim.ahead == 3
    assert not claim.holds


def test_training_begins_where_each_game_has_a_score(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    names = [f"mean_episode_return/{game}" for game in ("Pong", "AirRaid")]
    rows = [("step", "seconds", *names), (1, 1, 5, ""), (2, 2, 6, 20), (4, 4, 8, 40)]
    write_table(run / "logs.csv", *rows)
    steps, scores = popart_claims.read_training(RunRecords(run), ["Pong", "AirRaid"])
    assert steps.tolist() == [2, 4]
    assert scores.tolist() == [[6, 20], [8, 40]]
