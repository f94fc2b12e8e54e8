import pytest

from torchbeast.records.csv_tables import Table, resume_table


def write(path, content):
    path.write_bytes(content)
    return path


def test_a_comma_inside_a_cell_divides_nothing(tmp_path):
    path = write(tmp_path / "table.csv", b'step,host,envs\n10,"lab, rack 2",8\n10,b,8\n20,"lab, r')
    content = path.read_text()
    resume_table(path, 20)
    assert path.read_text() == content.removesuffix('20,"lab, r')


@pytest.mark.parametrize("cut", [b"20,0.25", b"2"])
def test_a_row_that_is_being_written_is_not_read(tmp_path, cut):
    table = Table(write(tmp_path / "logs.csv", b"step,loss\n10,0.5\n" + cut))
    assert table.column("step").tolist() == [10]
    resume_table(tmp_path / "logs.csv", 20)
    assert (tmp_path / "logs.csv").read_text() == "step,loss\n10,0.5\n"


@pytest.mark.parametrize("content", [b"step,loss\n10,1\nten,2\n", b"\xff\xfe\x00"])
def test_a_damaged_table_is_renamed(tmp_path, caplog, content):
    path = write(tmp_path / "logs.csv", content)
    resume_table(path, 20)
    (aside,) = tmp_path.iterdir()
    assert aside.read_bytes() == content
    assert f"{path} is damaged" in caplog.text
    assert aside.name in caplog.text


def test_a_table_that_is_not_there_is_no_trouble(tmp_path):
    resume_table(tmp_path / "logs.csv", 20)
    resume_table(write(tmp_path / "empty.csv", b""), 20)
    assert [p.name for p in tmp_path.iterdir()] == ["empty.csv"]
