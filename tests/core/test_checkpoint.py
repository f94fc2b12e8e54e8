import pickle

import pytest
import torch

from torchbeast.core import checkpoint
from torchbeast.core.types import UsageError

CONTENTS = {"model_state_dict": {"w": torch.arange(3)}, "steps": 7}


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "run" / "model.tar"
    checkpoint.save(path, CONTENTS)
    loaded = checkpoint.load(path)
    assert loaded["steps"] == 7
    assert torch.equal(loaded["model_state_dict"]["w"], torch.arange(3))
    assert [p.name for p in path.parent.iterdir()] == ["model.tar"]


def test_failed_save_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "model.tar"
    checkpoint.save(path, CONTENTS)

    class Unsaveable:
        def __reduce__(self):
            raise OSError("disk is full")

    with pytest.raises(OSError, match="disk is full"):
        checkpoint.save(path, {"model_state_dict": Unsaveable()})
    assert checkpoint.load(path)["steps"] == 7
    assert [p.name for p in tmp_path.iterdir()] == ["model.tar"]


def test_code_is_never_executed(tmp_path):
    path = tmp_path / "model.tar"
    mark = tmp_path / "executed"

    class Malicious:
        def __reduce__(self):
            return (open, (str(mark), "w"))

    torch.save({"model_state_dict": Malicious()}, path)
    with pytest.raises(UsageError, match="not a checkpoint that can be trusted"):
        checkpoint.load(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(UsageError, match="not a checkpoint that can be trusted"):
        checkpoint.load(path)
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut off"])
def test_what_is_no_checkpoint_is_one_clear_line(tmp_path, content):
    path = tmp_path / "model.tar"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        checkpoint.load(path)
    assert "\n" not in str(error.value)


def test_missing_checkpoint_names_the_runs_there_are(tmp_path):
    checkpoint.save(tmp_path / "mine" / "model.tar", CONTENTS)
    with pytest.raises(UsageError, match=r"No checkpoint at .*other.*; --savedir .* has mine"):
        checkpoint.load(checkpoint.model_path(tmp_path, "other"))


def test_later_formats_are_refused(tmp_path):
    path = tmp_path / "model.tar"
    torch.save({"format": checkpoint.FORMAT_VERSION + 1, **CONTENTS}, path)
    with pytest.raises(UsageError, match="later version"):
        checkpoint.load(path)
