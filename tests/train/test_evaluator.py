"""The evaluator, as a process and without one."""

import signal

import psutil
import pytest
import torch

from tests.processes import wait_until
from torchbeast.envs import plan_envs
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint
from torchbeast.records.scores import GameScore
from torchbeast.train import evaluator
from torchbeast.train.evaluation import EvaluatorProcess, Failure, Finished, Request

TARGET = "tests.moving_target:MovingTarget-v0"
BREAKOUT = "BreakoutNoFrameskip-v4"


@pytest.fixture
def make_request(tmp_path):
    """Builds a request with a new agent of some games; keywords are its other fields."""

    def make(*games, **fields):
        torch.manual_seed(0)
        spec = plan_envs(games)
        config = AgentConfig(
            agent_type="atari",
            observation_shape=spec.observation_shape,
            num_actions=spec.num_actions,
            tasks=games,
        )
        contents = {
            "agent": config._asdict(),
            "model_state_dict": make_agent(config).state_dict(),
            "steps": 640,
        }
        checkpoint.save(tmp_path / "evaluated.tar", contents)
        request = Request(
            checkpoint=tmp_path / "evaluated.tar",
            directory=tmp_path,
            xpid="run",
            step=640,
            agent_type="atari",
            games=games,
            num_episodes=0,
            film=False,
        )
        return request._replace(**fields)

    return make


@pytest.fixture
def process():
    process = EvaluatorProcess()
    process.start(niceness=1)
    yield process
    process.close()


def answers(process):
    """What the process sends, up to Finished."""
    found = []
    while not found or not isinstance(found[-1], Finished):
        message = process.receive(timeout=1.0)
        if message is not None:
            found.append(message)
    return found


def no_wait():
    pass


def test_every_game_is_scored_under_both_policies(make_request):
    request = make_request(TARGET, num_episodes=9)
    scores = list(evaluator.evaluate(request, no_wait))
    assert [(s.env, s.policy, s.episodes) for s in scores] == [
        (TARGET, "greedy", 9),
        (TARGET, "sampled", 9),
    ]
    assert all(s.mean_steps == 3.0 for s in scores)
    # The games are the same each time.
    assert list(evaluator.evaluate(request, no_wait)) == scores


def test_films_go_into_the_run(make_request, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluator, "MAX_FILM_STEPS", 12)
    request = make_request(BREAKOUT, film=True)
    assert list(evaluator.evaluate(request, no_wait)) == []
    film = tmp_path / "movies" / f"run_640_{BREAKOUT}.gif"
    assert len(film.with_suffix(".actions").read_text().split()) == 12
    assert film.exists()


@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_what_fails_is_told_and_the_rest_is_done(make_request):
    # The environment has no pictures to film.
    request = make_request(TARGET, num_episodes=1, film=True)
    *scores, failure = evaluator.evaluate(request, no_wait)
    assert len(scores) == 2
    assert failure.what == f"The film of {TARGET}"
    assert "takes no render_mode" in failure.reason


def test_a_film_is_not_left_unfinished_when_the_trainer_ends(make_request, tmp_path):
    steps = iter(range(5))

    def wait():
        if next(steps) == 4:
            raise evaluator.TrainerLostError

    with pytest.raises(evaluator.TrainerLostError):
        list(evaluator.evaluate(make_request(BREAKOUT, film=True), wait))
    assert not list((tmp_path / "movies").iterdir())


def test_the_process_answers_requests_until_its_connection_ends(make_request, process, tmp_path):
    process.send(make_request(TARGET, num_episodes=1))
    *scores, finished = answers(process)
    assert [type(s) for s in scores] == [GameScore, GameScore]
    assert finished == Finished(640)
    (tmp_path / "evaluated.tar").unlink()
    process.send(make_request(TARGET)._replace(checkpoint=tmp_path / "none.tar", step=700))
    failure, finished = answers(process)
    assert isinstance(failure, Failure)
    assert "No checkpoint at" in failure.reason
    assert finished == Finished(700)
    process.disconnect()
    while (code := process.exit_code()) is None:
        pass
    assert code == 0


def test_the_process_has_low_priority_and_leaves_ctrl_c_to_the_trainer(process):
    child = psutil.Process(process._process.pid)
    wait_until(lambda: child.nice() == min(19, psutil.Process().nice() + 1))
    child.send_signal(signal.SIGINT)
    assert child.is_running()
    child.kill()
    with pytest.raises(EOFError):
        process.receive(timeout=60.0)
    assert process.exit_code() == -signal.SIGKILL
    assert not process.send(None)
