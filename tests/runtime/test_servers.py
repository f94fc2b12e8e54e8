import os
import socket

from torchbeast.runtime.servers import remove_dead_socket


def bind(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def test_only_a_socket_that_nobody_listens_on_is_removed(tmp_path):
    bind(tmp_path / "dead").close()
    with bind(tmp_path / "alive") as alive, bind(tmp_path / "busy") as busy:
        alive.listen()
        busy.listen(0)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(str(tmp_path / "busy"))
        for name in ("dead", "alive", "busy", "missing", "no directory/missing"):
            remove_dead_socket(os.path.join(tmp_path, name))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["alive", "busy"]
        for client in clients:
            client.close()
