"""An environment server in Python alone, for machines where nothing was compiled.

It speaks the protocol of ``libtorchbeast/proto/rpcenv.proto`` as the C++ server does: the same
tests run against both. A step costs it more CPU time.
"""

from torchbeast.serving.server import Server

__all__ = ["Server"]
