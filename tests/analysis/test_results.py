import pytest

from torchbeast.analysis.results import write_table


def test_an_interrupted_table_leaves_the_earlier_one(tmp_path):
    path = tmp_path / "results.csv"
    write_table(path, ("a", "b"), [(1, "x,y")])

    def rows():
        yield (2, "z")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(path, ("a", "b"), rows())
    assert path.read_text() == 'a,b\n1,"x,y"\n'
    assert list(tmp_path.iterdir()) == [path]
