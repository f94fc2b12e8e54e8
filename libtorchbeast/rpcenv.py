"""``libtorchbeast.rpcenv``, the environments' side, under the name TorchBeast gave it."""

from libtorchbeast._C import Server

__all__ = ["Server"]
