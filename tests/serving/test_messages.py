import shutil
import subprocess
from pathlib import Path

import pytest

from torchbeast.serving import messages
from torchbeast.serving.environments import MAX_FAILURE_BYTES, clean_text

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("protoc") is None, reason="no protoc")
def test_the_stored_protocol_is_the_one_in_the_proto_file(tmp_path):
    target = tmp_path / "rpcenv.binpb"
    proto = ROOT / "libtorchbeast" / "proto"
    subprocess.run(
        ["protoc", f"--proto_path={proto}", f"--descriptor_set_out={target}", "rpcenv.proto"],
        check=True,
    )
    stored = Path(messages.__file__).with_name("rpcenv.binpb").read_bytes()
    message = messages.descriptor_pb2.FileDescriptorSet
    assert message.FromString(stored) == message.FromString(target.read_bytes()), (
        "store it with protoc --proto_path=libtorchbeast/proto "
        "--descriptor_set_out=torchbeast/serving/rpcenv.binpb rpcenv.proto"
    )


def test_every_element_type_has_a_numpy_name():
    assert messages.DTYPES[2] == "uint8"
    assert messages.NUMBERS["float64"] == 10
    assert len(messages.DTYPES) == 9


def test_texts_are_made_fit_for_a_message():
    assert clean_text("a\tb\nc\0\x1b\ud800") == "a\tb\nc??\\ud800"
    text = clean_text("é" * MAX_FAILURE_BYTES)
    assert text.startswith("...é")
    assert len(text.encode()) <= MAX_FAILURE_BYTES + 3
