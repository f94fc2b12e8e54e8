import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchbeast.core.types import UsageError
from torchbeast.envs import make_env
from torchbeast.envs.mock import Mock
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play import films as movies
from torchbeast.play import films as watching
from torchbeast.play import games as playing
from torchbeast.play.config import EvaluationConfig
from torchbeast.play.films import HEADER_HEIGHT
from torchbeast.polybeast import make_parser
from torchbeast.records import checkpoint
from torchbeast.runtime.threads import StopSignals

PONG = "PongNoFrameskip-v4"


@pytest.fixture
def savedir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari"))
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(tmp_path / "runs" / "mine" / "model.tar", {**contents, "steps": 640})
    return tmp_path / "runs"


def config(savedir, *more):
    flags = make_parser().parse_args(["--savedir", str(savedir), "--xpid=mine", *more])
    return EvaluationConfig.from_flags(vars(flags))


def test_records_a_whole_game_that_its_actions_replay(savedir, capsys):
    watching.record(config(savedir, "--sample", "--seed=3"), StopSignals())
    path = savedir / "mine" / "movies" / f"mine_640_{PONG}.gif"
    actions = path.with_suffix(".actions")
    steps = len(actions.read_text().split())
    assert f"in {steps} steps" in capsys.readouterr().out
    with Image.open(path) as gif:
        assert gif.n_frames <= steps  # Equal pictures in a row are one, shown longer.
        assert gif.size == (320, 420)
        gif.seek(50)
        assert (92, 186, 92) in {c for _, c in gif.convert("RGB").getcolors()}

    again = savedir / "again.gif"
    watching.record(
        config(savedir, "--seed=3", f"--actions={actions}", f"--movie={again}"), StopSignals()
    )
    assert again.read_bytes() == path.read_bytes()
    assert again.with_suffix(".actions").read_text() == actions.read_text()


def test_a_signal_ends_a_recording_and_saves_what_there_is(savedir, capsys):
    signals = StopSignals()

    class Interrupting(watching.MovieWriter):
        def append(self, picture):
            super().append(picture)
            if len(self._gif) == 20:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "MovieWriter", Interrupting)
        watching.record(config(savedir, "--sample"), signals)
    assert signals.received == signal.SIGINT
    path = savedir / "mine" / "movies" / f"mine_640_{PONG}.gif"
    said = capsys.readouterr()
    assert "the first 20 steps" in said.out
    assert said.err.startswith("Saving the film (Ctrl-C again")
    assert len(path.with_suffix(".actions").read_text().split()) == 20
    assert path.exists()


@pytest.mark.parametrize("picture", [None, np.zeros((20, 30), np.uint8)])
def test_an_environment_that_draws_nothing_is_one_clear_line(picture):
    env = Mock()
    env.render = lambda: picture
    with pytest.raises(UsageError, match=r"^'Mock' cannot be drawn: its render\(\) returns no"):
        playing.draw_game(env)


def test_a_film_may_be_shorter_than_the_game(savedir, monkeypatch, capsys):
    path = savedir / "short.gif"
    flags = ("--sample", f"--movie={path}")
    watching.record(config(savedir, *flags, "--movie_steps=30"), StopSignals())
    assert capsys.readouterr().out == f"{path}: the first 30 steps of {PONG}\n"
    assert len(path.with_suffix(".actions").read_text().split()) == 30
    for module in (watching, movies):
        monkeypatch.setattr(module, "MAX_GIF_FRAMES", 20)
    watching.record(config(savedir, *flags), StopSignals())
    assert "the first 20 steps" in (out := capsys.readouterr().out)
    assert "use .mp4 for long games" in out


def test_several_games_are_filmed_into_a_directory(savedir, tmp_path):
    trained = playing.Trained(None, "mine", "640", directory=tmp_path / "mine")
    directory = tmp_path / "films"
    for name in (str(directory), "movies.v1/"):
        (tmp_path / "movies.v1").mkdir(exist_ok=True)
        path = watching.movie_path(config(savedir, f"--movie={name}"), trained, "ALE/Pong-v5", 2)
        assert path.name == "mine_640_ALE-Pong-v5.gif"
        assert path.parent == Path(name)
    one = config(savedir, "--movie=pong.gif")
    assert watching.movie_path(one, trained, PONG, 1) == Path("pong.gif")
    with pytest.raises(UsageError, match="name a directory for 2 games"):
        watching.movie_path(one, trained, PONG, 2)


def test_without_a_display_it_records_instead(savedir, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    film = savedir / "film.mp4"
    watching.render(config(savedir, "--sample", f"--movie={film}"), StopSignals())
    assert "No display" in capsys.readouterr().err
    assert film.stat().st_size > 10_000


def test_a_window_shows_the_game_under_its_name_and_score(savedir, monkeypatch, capsys):
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(watching, "frames_per_second", lambda _: 10_000)
    watching.render(config(savedir, "--sample", "--num_episodes=1"), StopSignals())
    xpid, model, env, steps, score = capsys.readouterr().out.strip().split(",")
    assert (xpid, model, env) == ("mine", "640", PONG)
    assert int(steps) > 700
    assert -21 <= float(score) < 0


def test_caption_tells_the_score():
    plain = make_env(PONG, seed=1, render_mode="rgb_array")
    env = watching.Captioned(plain, "Pong")
    env.reset()
    first = env.render()
    assert first.shape == (420 + HEADER_HEIGHT, 320, 3)
    assert np.array_equal(first[HEADER_HEIGHT::2, ::2], plain.render())
    env.step(0)
    assert not np.array_equal(env.render()[:HEADER_HEIGHT], first[:24])
