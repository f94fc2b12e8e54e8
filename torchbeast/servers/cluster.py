"""Environment servers on the machines of a Ray cluster.

Each server is an actor with one CPU. Ray chooses the machine, and notices when an actor or a
machine dies; another actor takes its place then. Actors get their game when they are there, so that
the games that have the fewest environments come first.

All of this happens in a child process of the learner, because Ray ends the process that uses it
when the cluster's head is lost.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import multiprocessing
import os
import re
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torchbeast
from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime import alarm
from torchbeast.runtime.allocation import choose_server, task_of
from torchbeast.runtime.text import counted, first_line
from torchbeast.runtime.workers import (
    MAX_FAILURES,
    Failures,
    begin_worker,
    seed_generators,
    start_with_pipe,
)
from torchbeast.servers.certificates import SERVER_NAME, make_certificate
from torchbeast.servers.sources import ServerSource
from torchbeast.servers.supervisor import ServedGames, make_env_init

log = logging.getLogger("torchbeast")

# Between two looks at the actors.
LOOK_INTERVAL_S = 0.25
# A server waits for its address to be bound in such steps.
BIND_INTERVAL_S = 0.01
# Between two lines about servers that are still missing.
PROGRESS_INTERVAL_S = 10.0
# How long Ray gets to find a cluster: it would try for many minutes.
CONNECT_TIMEOUT_S = 60.0
# How long Ray gets to leave its cluster.
STOP_TIMEOUT_S = 3.0


class ClusterConfig(NamedTuple):
    """The servers of one learner."""

    address: str
    """The address of the cluster's head, or ``auto``."""
    served: ServedGames
    loads: tuple[int, ...]
    """Environments of each server."""
    log_file: str
    """Gets what Ray and the environments print."""
    version: str = torchbeast.__version__
    """The version that all machines must have."""


class EnvServer:
    """An environment server in a process of Ray's. Its methods are called one after the other."""

    def introduce(self) -> tuple[str, str]:
        """Returns the version of torchbeast here, and Ray's id of the machine."""
        import ray

        return torchbeast.__version__, ray.get_runtime_context().get_node_id()

    def serve(
        self, served: ServedGames, task: int, seeds: tuple[int, ...], tls: Sequence[str]
    ) -> str:
        """Starts to serve a game. Returns the address.

        Raises:
            RuntimeError: there is none.
        """
        import ray

        from libtorchbeast import Server
        from torchbeast.envs import derive_seed

        seed_generators(derive_seed(served.seed, *seeds))
        alarm.print_tracebacks()
        env_init = make_env_init(served, task, seeds)
        ip = ray.util.get_node_ip_address()
        host = f"[{ip}]" if ":" in ip else ip
        server = Server(env_init, f"{host}:0", task, tls, environment=served.describe(task))
        self._error = "ended"
        self._thread = threading.Thread(target=self._run, args=(server,), daemon=True)
        self._thread.start()
        while server.port == 0:
            if not self._thread.is_alive():
                raise RuntimeError(self._error)
            time.sleep(BIND_INTERVAL_S)
        return f"{host}:{server.port}"

    def _run(self, server: Any) -> None:
        try:
            server.run()
        except Exception as error:
            self._error = str(error)

    def wait(self) -> str:
        """Waits until the server ends. Returns why."""
        self._thread.join()
        return self._error


class RayServers(ServerSource):
    """Environment servers on a Ray cluster. A context manager, in which they run.

    What goes wrong while Ray connects is raised by :meth:`changes`, as all that happens later.
    """

    def __init__(self, config: ClusterConfig) -> None:
        """Plans the servers; :meth:`__enter__` starts them."""
        tls = make_certificate()
        super().__init__([""] * len(config.loads), tls, SERVER_NAME)
        self._hosts = [""] * len(config.loads)
        self._config = config

    def __enter__(self) -> RayServers:
        config = self._config
        log.info("Ray: connecting to %s; its messages are in %s", config.address, config.log_file)
        self._is_connected, self._deadline = False, time.monotonic() + CONNECT_TIMEOUT_S
        # Not forked: this process has threads.
        context = multiprocessing.get_context("spawn")
        self._driver, self._pipe = start_with_pipe(context, _drive, config, self.tls, daemon=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._driver.join(STOP_TIMEOUT_S)
        self._driver.kill()
        self._driver.join()

    def changes(self) -> list[tuple[int, str]]:
        """As in the base class. Raises UsageError if no cluster answers."""
        changes = []
        try:
            while self._pipe.poll():
                kind, *values = self._pipe.recv()
                if kind == "server":
                    index, self.addresses[index], self._hosts[index] = values
                    changes.append((index, self.addresses[index]))
                elif kind == "log":
                    log.log(values[0], "%s", values[1])
                elif kind == "connected":
                    self._is_connected = True
                else:
                    raise {"misuse": UsageError, "failed": RunError}[kind](values[0])
        except (EOFError, ConnectionResetError):
            self._driver.join(STOP_TIMEOUT_S)
            raise RunError(
                f"the Ray cluster at {self._config.address} is lost (Ray ended with exit code "
                f"{self._driver.exitcode}, see {self._config.log_file}): start it and the same "
                "command again to resume"
            ) from None
        if not self._is_connected and time.monotonic() > self._deadline:
            raise UsageError(
                f"--ray_address {self._config.address}: no cluster answered within "
                f"{CONNECT_TIMEOUT_S:g} s; ray start --head starts one (see "
                f"{self._config.log_file})"
            )
        return changes

    def explain(self, text: str) -> str:
        for index, (address, host) in enumerate(zip(self.addresses, self._hosts, strict=True)):
            if address:
                name = f"server {index} on {host} ({address})"
                text = name.join(re.split(rf"{re.escape(address)}(?!\d)", text))
        return text


class _PipeHandler(logging.Handler):
    """Has the learner log what this process says."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        self._pipe.send(("log", record.levelno, record.getMessage()))


def _drive(config: ClusterConfig, tls: Sequence[str], pipe: Connection) -> None:
    """The child process: runs servers until the learner closes its end of the pipe."""
    begin_worker()
    import ray

    with contextlib.suppress(OSError):  # Not every rank may see the run's directory.
        file = os.open(config.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
    log.setLevel(logging.INFO)
    log.addHandler(_PipeHandler(pipe))
    log.propagate = False
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # The learner is gone.
        try:
            _connect(config.address)
            pipe.send(("connected",))
            _Driver(pipe, config, tls).run()
        except (UsageError, RunError) as error:
            pipe.send(("misuse" if isinstance(error, UsageError) else "failed", str(error)))
    ray.shutdown()  # It ends the actors.


def _connect(address: str) -> None:
    """Connects this process to a cluster. Raises UsageError if that is impossible."""
    import ray

    try:
        # Without a runtime_env: a submitted job has one, which this one would contradict.
        ray.init(address, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises many types.
        text = " ".join(str(error).split()).rstrip(".")
        raise UsageError(
            f"--ray_address {address}: {text or type(error).__name__}. Every machine of the "
            "cluster, and the learner's, needs the same Ray and Python, and ray start"
        ) from error


class _Actor:
    """An actor, and what is known of it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.awaited = "introduce"  # The method whose result is awaited.
        self.index: int | None = None
        self.host = ""

    def call(self, method: str, *args: Any) -> Any:
        self.awaited = method
        return getattr(self.handle, method).remote(*args)

    def __str__(self) -> str:
        return f"server {self.index} on {self.host}"


class _Driver:
    """Has as many actors as there are servers, replaces those that are lost, and tells the learner
    their addresses.
    """

    def __init__(self, pipe: Connection, config: ClusterConfig, tls: Sequence[str]) -> None:
        import ray

        self._ray = ray
        self._pipe = pipe
        self._config = config
        self._tls = tls
        # Actors that wait for a CPU are what an autoscaler goes by. Ray does not restart them:
        # a new actor has no past, and Ray says for certain that the old one is dead.
        self._actor_class = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(
            EnvServer
        )
        self._awaited: dict[Any, _Actor] = {}  # By the reference of a result.
        self._present: set[int] = set()  # Servers that have an actor.
        self._listening: set[int] = set()
        self._early_deaths = 0  # How many actors in succession died before they had a game.
        self._starts = [0] * len(config.loads)
        self._failures = Failures(len(config.loads), config.served.step_timeout_s)
        self._told, self._next_telling = -1, time.monotonic() + PROGRESS_INTERVAL_S

    def run(self) -> None:
        """Runs until the learner is gone. Raises RunError or UsageError if that is impossible."""
        for _ in self._config.loads:
            self._start_actor()
        while not self._pipe.poll():  # It sends nothing: this is its end.
            calls = list(self._awaited)
            done, _ = self._ray.wait(calls, num_returns=len(calls), timeout=LOOK_INTERVAL_S)
            lost: collections.Counter[str] = collections.Counter()
            for call in done:
                actor = self._awaited.pop(call)
                try:
                    self._advance(actor, self._ray.get(call))
                except self._ray.exceptions.RayActorError as error:
                    if self._replace_lost(actor, str(error)):
                        lost[actor.host] += 1
                except self._ray.exceptions.RayTaskError as error:
                    raise RunError(f"{actor}: {first_line(error.cause)}") from error
            for host, count in lost.items():
                log.warning("Ray: %s is gone with %s", host, counted(count, "server"))
            self._tell_progress()

    def _start_actor(self) -> None:
        actor = _Actor(self._actor_class.remote())
        self._awaited[actor.call("introduce")] = actor

    def _advance(self, actor: _Actor, result: Any) -> None:
        """Takes in the result of an actor's method, and calls the next one."""
        if actor.awaited == "introduce":
            call = self._admit(actor, *result)
        elif actor.awaited == "serve":
            assert actor.index is not None
            self._listening.add(actor.index)
            self._pipe.send(("server", actor.index, result, actor.host))
            call = actor.call("wait")
        else:
            self._replace(actor, result)
            return
        self._awaited[call] = actor

    def _admit(self, actor: _Actor, version: str, node: str) -> Any:
        """Gives an actor its game. Returns the call."""
        config, self._early_deaths = self._config, 0
        actor.host = self._find_name(node)
        if version != config.version:
            raise UsageError(
                f"{actor.host} has torchbeast {version}, the learner {config.version}: install "
                "one version on all machines of the cluster"
            )
        num_tasks = len(config.served.games)
        actor.index = index = choose_server(config.loads, num_tasks, self._present)
        self._present.add(index)
        seeds = (index, self._starts[index])
        self._starts[index] += 1
        return actor.call("serve", config.served, task_of(index, num_tasks), seeds, self._tls)

    def _replace_lost(self, actor: _Actor, text: str) -> bool:
        """Replaces an actor that Ray has lost. Returns whether a server went with its machine."""
        if "worker process has died" in text and actor.index is not None:
            self._replace(actor, f"died or hung (its last words are in {self._config.log_file})")
            return False
        if "creation task" in text or "failed to import" in text:
            found = re.search(r"\bip[=:] ?([\w.:]+)", text)
            place = "a machine of the cluster" if found is None else f"the machine {found[1]}"
            raise UsageError(
                f"{place} cannot run torchbeast {self._config.version}: "
                f"{text.strip().splitlines()[-1]}"
            )
        if "worker process has died" in text:
            self._early_deaths += 1
            if self._early_deaths > MAX_FAILURES * len(self._config.loads):
                raise RunError(f"Ray cannot start servers: {text.strip().splitlines()[-1]}")
        self._forget(actor)
        return actor.index is not None

    def _replace(self, actor: _Actor, reason: str) -> None:
        """Replaces an actor that failed. Raises RunError if that would not help."""
        assert actor.index is not None
        self._failures.note(actor.index, f"Ray: {actor}", reason)
        self._forget(actor)

    def _forget(self, actor: _Actor) -> None:
        """Starts another actor in the place of one that serves no more."""
        self._ray.kill(actor.handle)
        if actor.index is not None:
            self._present.discard(actor.index)
            self._listening.discard(actor.index)
            self._pipe.send(("server", actor.index, "", ""))
        self._start_actor()

    def _find_name(self, node_id: str) -> str:
        node = next(node for node in self._ray.nodes() if node["NodeID"] == node_id)
        # A node without a name of its own is called by its address.
        has_name = node["NodeName"] != node["NodeManagerAddress"]
        return node["NodeName"] if has_name else node["NodeManagerHostname"]

    def _tell_progress(self) -> None:
        """Logs how many servers there are, if that has changed and it is time."""
        count, wanted = len(self._listening), len(self._config.loads)
        if count == self._told or (count < wanted and time.monotonic() < self._next_telling):
            return
        self._told, self._next_telling = count, time.monotonic() + PROGRESS_INTERVAL_S
        waiting = "" if count == wanted else "; the others wait for CPUs of the cluster"
        log.info("Ray: %s of %s run%s", count, counted(wanted, "server"), waiting)
