"""The gradients of docs/popart_study.md, from its records and from one with known numbers."""

from tests.conftest import ROOT
from tools import popart_gradients
from torchbeast.records.csv_tables import Table


def test_the_page_has_the_table_that_is_printed_and_the_figure_is_drawn(
    monkeypatch, capsys, tmp_path
):
    picture = tmp_path / "gradients.png"
    monkeypatch.setattr("sys.argv", ["popart_gradients", "--output", str(picture)])
    assert popart_gradients.main() == 0
    table = capsys.readouterr().out.removesuffix(f"{picture}\n")
    assert table.count("\n") > 2
    assert table in (ROOT / "docs" / "popart_study.md").read_text()
    assert picture.stat().st_size > 10_000


def test_a_norm_is_the_median_over_the_second_half(tmp_path):
    seeds = []
    for seed, late in enumerate(((3, 5, 7), (9, 1, 1))):
        path = tmp_path / f"{seed}.csv"
        rows = [(10, 1000), (20, 1000), (30, late[0]), (35, ""), (40, late[1]), (40, late[2])]
        path.write_text("step,grad_norm/Pong\n" + "".join(f"{s},{n}\n" for s, n in rows))
        seeds.append(Table(path))
    assert popart_gradients.games_of(seeds[0]) == ["Pong"]
    assert popart_gradients.late_norms(seeds, ["Pong"]).tolist() == [[5.0], [1.0]]
