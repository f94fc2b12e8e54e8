"""The evaluator: a process that plays full games with an agent while that trains.

A training run starts it (:mod:`torchbeast.runtime.evaluator`) and names checkpoints; it answers
with scores. It uses one thread at low priority, and sleeps so that it stays within the share of the
cores that the run grants it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from torchbeast.runtime.evaluator import Alive, Failure, Finished, Notice, Pace, Request
from torchbeast.runtime.text import typed_line
from torchbeast.runtime.workers import begin_worker

if TYPE_CHECKING:
    from pathlib import Path

    from torchbeast.evaluate.trained import Trained
    from torchbeast.records.scores import GameScore

# Of games and of sampled actions, in every evaluation the same: differences are the agent's.
SEED = 0
# Films end here, 200 seconds into most games.
MAX_FILM_STEPS = 3000
# The shortest time between two messages that the process is alive.
ALIVE_INTERVAL_S = 1.0
# The steps of a game that a saliency sheet shows.
SALIENCY_STEPS = range(60, 180, 20)


class TrainerLostError(Exception):
    """The training run ended."""


class Throttle:
    """Sleeps so that this process stays within its cores. Listens to the trainer meanwhile.

    Tells it that this process does not hang, too.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._told_at = time.monotonic()
        self.set_cores(1.0)

    def set_cores(self, cores: float) -> None:
        """Limits the process to ``cores`` cores from now on. Earlier savings are forgotten."""
        self._cores = cores
        self._cpu_start = time.process_time()
        self._start = time.monotonic()

    def wait(self) -> None:
        """Sleeps if the process is ahead of its share. To be called after each piece of work.

        Raises:
            TrainerLostError: the connection was closed.
        """
        now = time.monotonic()
        if now - self._told_at > ALIVE_INTERVAL_S:
            send(self._connection, Alive())
            self._told_at = now
        due = self._start + (time.process_time() - self._cpu_start) / self._cores
        if self._connection.poll(max(0.0, due - now)):
            self.set_cores(receive(self._connection).cores)


def receive(connection: Connection) -> Request | Pace:
    """Waits for a message. Raises TrainerLostError."""
    try:
        message: Request | Pace = connection.recv()
    except (EOFError, OSError):
        raise TrainerLostError from None
    return message


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
    throttle = Throttle(connection)
    with contextlib.suppress(TrainerLostError):
        while True:
            message = receive(connection)
            throttle.set_cores(message.cores)
            if isinstance(message, Request):
                for answer in evaluate(message, throttle.wait):
                    send(connection, answer)
                send(connection, Finished(message.step))


def evaluate(request: Request, wait: Callable[[], None]) -> Iterator[object]:
    """Does all that a request asks for, game by game.

    Args:
        request: what to do.
        wait: to be called after each piece of work; raises TrainerLostError.

    Yields:
        GameScores and Failures.
    """
    # Imported late: a short run need not wait for it, and the share counts from the request on.
    import torch

    from torchbeast.evaluate.trained import read_trained

    torch.set_num_threads(1)
    try:
        trained = read_trained(request.checkpoint, request.xpid, request.agent_type)
        trained = trained._replace(model_id=str(request.step))
    except Exception as error:
        yield Failure("Loading the agent", typed_line(error))
        return
    for game in trained.agent.config.tasks:
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
    from torchbeast.evaluate.scoring import score_game
    from torchbeast.evaluate.watching import file_name, movie_name

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
    if request.saliency:
        name = f"{trained.xpid}_{trained.model_id}_{file_name(game)}.png"
        sheet = request.directory / "saliency" / name
        yield "The saliency", functools.partial(draw_saliency, trained, game, sheet, wait)


def film(trained: Trained, game: str, path: Path, wait: Callable[[], None]) -> None:
    """Films the start of a game."""
    from torchbeast.evaluate.watching import film_game

    def is_over(step: int) -> bool:
        wait()
        return step >= MAX_FILM_STEPS

    film_game(trained, game, path, greedy=True, seed=SEED, is_over=is_over)


def draw_saliency(trained: Trained, game: str, path: Path, wait: Callable[[], None]) -> None:
    """Draws where the agent looks in some steps of a game, side by side."""
    from torchbeast.analysis.saliency import Explainer, SaliencyConfig, parse_scores
    from torchbeast.analysis.saliency.drawing import find_peaks, make_film
    from torchbeast.analysis.saliency.files import write_sheet
    from torchbeast.core.types import UsageError

    explainer = Explainer(trained, game, SaliencyConfig())
    steps: list[Any] = []
    for step in SALIENCY_STEPS:
        wait()
        try:
            steps += explainer.watch(first_frame=step, num_frames=1, seed=SEED)
        except UsageError:  # The game ended before this step.
            if not steps:
                raise
            break
    scores = parse_scores(["policy", "value"], explainer.subject)
    film = make_film(f"{trained.xpid} {trained.model_id}", steps, scores)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sheet(path, [film], find_peaks([film]))
