import sys

import libtorchbeast
from torchbeast import serving
from torchbeast.polybeast_env import find_server


def test_the_cpp_server_serves_where_it_was_compiled(monkeypatch):
    assert find_server(pure_python=False) is libtorchbeast.Server
    assert find_server(pure_python=True) is serving.Server
    monkeypatch.setitem(sys.modules, "libtorchbeast", None)
    assert find_server(pure_python=False) is serving.Server
