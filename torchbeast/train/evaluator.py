"""The evaluator: a process that plays full games with an agent while that trains.

A training run starts it (:mod:`torchbeast.train.evaluation`) and names checkpoints; it answers
with scores. It uses one thread at low priority.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from torchbeast.runtime.text import typed_line
from torchbeast.runtime.workers import begin_worker
from torchbeast.train.evaluation import Alive, Failure, Finished, Notice, Request

if TYPE_CHECKING:
    from pathlib import Path

    from torchbeast.play.agents import Trained
    from torchbeast.records.scores import GameScore

# Of games and of sampled actions, in every evaluation the same: differences are the agent's.
SEED = 0
# Films end here, 200 seconds into most games.
MAX_FILM_STEPS = 3000
# The shortest time between two messages that the process is alive.
ALIVE_INTERVAL_S = 1.0


class TrainerLostError(Exception):
    """The training run ended."""


class Pulse:
    """Tells the trainer that this process does not hang, and notices that the trainer ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._told_at = time.monotonic()

    def beat(self) -> None:
        """To be called after each piece of work. Raises TrainerLostError."""
        now = time.monotonic()
        if now - self._told_at > ALIVE_INTERVAL_S:
            send(self._connection, Alive())
            self._told_at = now
        if self._connection.poll():  # Nothing is sent while this process works.
            raise TrainerLostError


def receive(connection: Connection) -> Request:
    """Waits for a request. Raises TrainerLostError."""
    try:
        request: Request = connection.recv()
    except (EOFError, OSError):
        raise TrainerLostError from None
    return request


def send(connection: Connection, message: object) -> None:
    """Sends a message. Raises TrainerLostError."""
    try:
        connection.send(message)
    except OSError:
        raise TrainerLostError from None


class NoticeHandler(logging.Handler):
    """Sends log messages to the trainer, whose log has its place in the run's directory."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a message. Raises TrainerLostError."""
        send(self._connection, Notice(record.getMessage()))


def serve(descriptor: int, niceness: int) -> None:
    """Answers requests until the trainer is gone.

    Args:
        descriptor: of the connection to the trainer.
        niceness: how much lower than the trainer's this process's priority is.
    """
    begin_worker(niceness, SEED)
    connection = Connection(descriptor)
    logging.getLogger("torchbeast").addHandler(NoticeHandler(connection))
    pulse = Pulse(connection)
    with contextlib.suppress(TrainerLostError):
        while True:
            request = receive(connection)
            for answer in evaluate(request, pulse.beat):
                send(connection, answer)
            send(connection, Finished(request.step))


def evaluate(request: Request, wait: Callable[[], None]) -> Iterator[object]:
    """Does all that a request asks for, game by game.

    Args:
        request: what to do.
        wait: to be called after each piece of work; raises TrainerLostError.

    Yields:
        GameScores and Failures.
    """
    # Imported late: a short run need not wait for it.
    import torch

    from torchbeast.play.agents import read_trained

    torch.set_num_threads(1)
    try:
        trained = read_trained(request.checkpoint, request.xpid, request.agent_type)
        trained = trained._replace(model_id=str(request.step))
    except Exception as error:
        yield Failure("Loading the agent", typed_line(error))
        return
    for game in request.games:
        for name, job in jobs(request, trained, game, wait):
            try:
                score = job()
            except TrainerLostError:
                raise
            except Exception as error:
                yield Failure(f"{name} of {game}", typed_line(error))
            else:
                if score is not None:
                    yield score


def jobs(
    request: Request, trained: Trained, game: str, wait: Callable[[], None]
) -> Iterator[tuple[str, Callable[[], GameScore | None]]]:
    """Yields the parts of a request that concern one game, each with its name for messages."""
    from torchbeast.play.films import movie_name
    from torchbeast.play.testing import score_game

    if request.num_episodes:
        for greedy in (True, False):
            yield (
                "The evaluation",
                functools.partial(
                    score_game,
                    trained,
                    game,
                    request.num_episodes,
                    greedy=greedy,
                    seed=SEED,
                    after_step=wait,
                ),
            )
    if request.film:
        movie = request.directory / "movies" / movie_name(trained, game)
        yield "The film", functools.partial(film, trained, game, movie, wait)


def film(trained: Trained, game: str, path: Path, wait: Callable[[], None]) -> None:
    """Films the start of a game."""
    from torchbeast.play.films import film_game

    def is_over(step: int) -> bool:
        wait()
        return step >= MAX_FILM_STEPS

    film_game(trained, game, path, greedy=True, seed=SEED, is_over=is_over)
