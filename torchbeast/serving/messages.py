"""The protocol's messages, without generated code.

``rpcenv.binpb`` is ``libtorchbeast/proto/rpcenv.proto`` as a binary descriptor, made by protoc. The
message classes are made from it at import. Generated Python code would work only with the protobuf
version that it was generated for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTOCOL_VERSION = 2
MAX_MESSAGE_BYTES = 256 << 20
MAX_RANK = 6
MAX_LEAVES = 1024
MAX_KEY_BYTES = 64 << 10
METHOD = "Step"

_FILES = descriptor_pb2.FileDescriptorSet.FromString(
    (Path(__file__).parent / "rpcenv.binpb").read_bytes()
)
# A separate pool: the C++ server registers the same names with another library.
_POOL = descriptor_pool.DescriptorPool()
for _file in _FILES.file:
    _POOL.Add(_file)
_PACKAGE = _FILES.file[0].package

SERVICE = f"{_PACKAGE}.EnvironmentService"


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


Request, Reply, Spec, Failure = map(_message, ("Request", "Reply", "Spec", "Failure"))


class WireError(ValueError):
    """A message or an observation does not follow the protocol."""


# DTYPE_UINT8 = 2 becomes the entry {2: "uint8"}. NumPy has no bfloat16.
DTYPES = {
    value.number: value.name.removeprefix("DTYPE_").lower()
    for value in _POOL.FindEnumTypeByName(f"{_PACKAGE}.DType").values
    if value.name not in ("DTYPE_INVALID", "DTYPE_BFLOAT16")
}
NUMBERS = {name: number for number, name in DTYPES.items()}
