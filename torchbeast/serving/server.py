"""The server: addresses, streams, and what is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from torchbeast.runtime.allocation import MAX_ENVIRONMENTS_PER_STREAM
from torchbeast.runtime.servers import is_local, lock_sockets, somebody_listens
from torchbeast.serving.environments import EnvironmentBatch, FailedEnvironmentError
from torchbeast.serving.health import HANDLER
from torchbeast.serving.messages import (
    MAX_MESSAGE_BYTES,
    METHOD,
    PROTOCOL_VERSION,
    SERVICE,
    Reply,
    Request,
    WireError,
)
from torchbeast.serving.observations import decode_actions

# Each stream has a thread while it is open.
MAX_STREAMS = 256
# How often run() looks for signals, seconds.
POLL_INTERVAL_S = 0.1
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A small compressed message could be a huge one.
    ("grpc.per_message_decompression", 0),
    ("grpc.per_message_compression", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.so_reuseport", 0),
    # As in the C++ server: a learner whose machine vanished is noticed.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 1_200_000),
)


class RefusedError(Exception):
    """The request cannot be served."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """Serves environments, as ``libtorchbeast.Server`` does, with the same arguments."""

    def __init__(
        self,
        env_init: Callable[[], Any] | None = None,
        server_address: str = "unix:/tmp/polybeast",
        task: int = 0,
        tls: Sequence[str] | None = None,
        max_environments: int = 1024,
        env_class: Callable[[], Any] | None = None,
    ) -> None:
        """Checks the arguments. See ``libtorchbeast.Server``.

        Raises:
            TypeError: ``env_init`` cannot be called.
            ValueError: the address is none, or other machines could reach it without TLS.
        """
        env_init = env_class if env_init is None else env_init
        if not callable(env_init):
            raise TypeError("env_init must be callable: it makes one environment a call")
        if task < 0 or max_environments < 1:
            raise ValueError("task must be >= 0 and max_environments >= 1")
        if not is_local(server_address) and tls is None:
            raise ValueError(
                f"Refusing to listen on {server_address} without TLS: other machines can reach it"
            )
        self._env_init = env_init
        self._address = server_address
        self._task = task
        self._tls = tls
        self._max_environments = max_environments
        self._num_environments = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._exit: SystemExit | None = None

    def run(self) -> None:
        """Serves until :meth:`stop`. ``RuntimeError`` if the address cannot be bound.

        An environment that calls ``sys.exit`` ends the process, as in the C++ server.
        """
        server = grpc.server(ThreadPoolExecutor(MAX_STREAMS), options=OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(
            self._serve_stream, Request.FromString, Reply.SerializeToString
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}), HANDLER)
        )
        self._start(server)
        try:
            while not self._stopped.wait(POLL_INTERVAL_S):
                pass
        finally:
            server.stop(grace=None).wait(1)
        if self._exit is not None:
            raise self._exit

    def stop(self) -> None:
        """Makes :meth:`run` return. From any thread or a signal handler."""
        self._stopped.set()

    def _start(self, server: grpc.Server) -> None:
        if not self._address.startswith("unix:"):
            self._bind(server)
            return
        path = self._address.removeprefix("unix:")
        with lock_sockets(path):
            if somebody_listens(path):
                raise RuntimeError(f"Address is in use: {self._address}")
            self._bind(server)
            os.chmod(path, 0o600)

    def _bind(self, server: grpc.Server) -> None:
        """Listens, and begins to serve."""
        try:
            if self._tls is None:
                server.add_insecure_port(self._address)
            else:
                certificate, key, root = (text.encode() for text in self._tls)
                credentials = grpc.ssl_server_credentials(
                    [(key, certificate)], root_certificates=root, require_client_auth=True
                )
                server.add_secure_port(self._address, credentials)
        except RuntimeError as error:
            raise RuntimeError(
                f"Cannot listen on {self._address} (in use, or a directory that is missing or not "
                "writable)"
            ) from error
        server.start()

    def _serve_stream(
        self, requests: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        try:
            yield from self._answer(requests)
        except RefusedError as refusal:
            context.abort(refusal.code, str(refusal))
        except WireError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except FailedEnvironmentError as error:
            failure, step = error.args
            yield Reply(fatal=failure, step=step)
            context.abort(grpc.StatusCode.INTERNAL, "an environment failed")
        except SystemExit as error:  # gRPC would leave the stream without an answer for ever.
            self._exit = error
            self._stopped.set()
            raise

    def _answer(self, requests: Iterator[Any]) -> Iterator[Any]:
        first = next(requests, None)
        if first is None:
            return
        count = self._check_opening(first)
        environments = EnvironmentBatch(self._env_init, count, first.open.newest_plane)
        step = 0
        try:
            reply = Reply()
            environments.open(reply)
            reply.schema.task = self._task
            check_size(reply, count)
            yield reply
            for request in requests:
                step += 1
                if request.step != step:
                    raise WireError(f"step {request.step} after step {step - 1}")
                reply = Reply(step=step)
                environments.step(decode_actions(request, count), reply)
                yield reply
        except FailedEnvironmentError as error:
            raise FailedEnvironmentError(*error.args, step) from error
        finally:
            environments.close()
            with self._lock:
                self._num_environments -= count

    def _check_opening(self, request: Any) -> int:
        """Returns the number of environments that a stream opens, and counts them."""
        version, count = request.open.protocol_version, request.open.num_environments
        if version != PROTOCOL_VERSION:
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"protocol version {version}, this server speaks {PROTOCOL_VERSION}",
            )
        if not 1 <= count <= MAX_ENVIRONMENTS_PER_STREAM:
            raise WireError(f"cannot open {count} environments")
        if request.step != 0:
            raise WireError("the first step must be 0")
        with self._lock:
            if self._num_environments + count > self._max_environments:
                raise RefusedError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"cannot open {count} environments beside {self._num_environments}: this "
                    f"server has at most {self._max_environments}",
                )
            self._num_environments += count
        return count


def check_size(reply: Any, count: int) -> None:
    """Raises RefusedError if the observations of a stream do not fit into a message."""
    size = reply.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise RefusedError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"the observations of {count} environments are larger than max ({size} bytes, at most "
            f"{MAX_MESSAGE_BYTES})",
        )
