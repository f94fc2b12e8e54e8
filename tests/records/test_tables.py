import pytest

from torchbeast.records.tables import go_on_with


def write(path, content):
    path.write_bytes(content)
    return path


def test_rows_up_to_the_step_stay(tmp_path):
    path = write(tmp_path / "logs.csv", b"step,loss\n10,1\n20,2\n30,3\n3")
    go_on_with(path, 20)
    assert path.read_text() == "step,loss\n10,1\n20,2\n"


@pytest.mark.parametrize(
    "content", [b"step,loss\n10,1\nten,2\n", b"\xff\xfe\x00", b"step\nx" + b"9" * 5000 + b"\n"]
)
def test_a_damaged_table_is_put_aside(tmp_path, caplog, content):
    path = write(tmp_path / "logs.csv", content)
    go_on_with(path, 20)
    (aside,) = tmp_path.iterdir()
    assert aside.name.startswith("logs.")
    assert aside.read_bytes() == content
    assert f"{path} is damaged" in caplog.text
    assert aside.name in caplog.text


def test_a_table_that_is_not_there_is_no_trouble(tmp_path):
    go_on_with(tmp_path / "logs.csv", 20)
    go_on_with(write(tmp_path / "empty.csv", b""), 20)
    assert [p.name for p in tmp_path.iterdir()] == ["empty.csv"]
