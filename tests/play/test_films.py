import os
import signal
from pathlib import Path

import gymnasium
import pytest
import torch
from gymnasium.wrappers import HumanRendering
from PIL import Image

from tests import checkpoints
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play import films, game_loop, movie_writer
from torchbeast.play.config import PlayConfig
from torchbeast.polybeast import make_parser
from torchbeast.runtime.signals import StopSignals

BREAKOUT = "BreakoutNoFrameskip-v4"


@pytest.fixture
def savedir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", num_actions=4, tasks=(BREAKOUT,)))
    checkpoints.save_agent(tmp_path / "runs" / "mine" / "model.tar", agent, steps=640)
    return tmp_path / "runs"


def config(savedir, *more):
    flags = make_parser().parse_args(
        ["--savedir", str(savedir), "--xpid=mine", f"--env={BREAKOUT}", *more]
    )
    return PlayConfig.from_flags(vars(flags))


def test_records_a_whole_game_that_its_actions_replay(savedir, capsys):
    films.record(config(savedir, "--sample", "--seed=3"), StopSignals())
    path = savedir / "mine" / "movies" / f"mine_640_{BREAKOUT}.gif"
    actions = path.with_suffix(".actions")
    steps = len(actions.read_text().split())
    assert f"in {steps} steps" in capsys.readouterr().out
    with Image.open(path) as gif:
        assert gif.n_frames <= steps  # Equal pictures in a row are one, shown longer.
        assert gif.size == (320, 420)
        gif.seek(20)
        assert (200, 72, 72) in {c for _, c in gif.convert("RGB").getcolors()}

    again = savedir / "again.gif"
    films.record(
        config(savedir, "--seed=3", f"--actions={actions}", f"--movie={again}"), StopSignals()
    )
    assert again.read_bytes() == path.read_bytes()
    assert again.with_suffix(".actions").read_text() == actions.read_text()


def test_a_signal_ends_a_recording_and_saves_what_there_is(savedir, capsys):
    signals, appended = StopSignals(), []

    class Interrupting(films.MovieWriter):
        def append(self, picture):
            super().append(picture)
            appended.append(picture)
            if len(appended) == 20:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(films, "MovieWriter", Interrupting)
        films.record(config(savedir, "--sample"), signals)
    assert signals.received == signal.SIGINT
    path = savedir / "mine" / "movies" / f"mine_640_{BREAKOUT}.gif"
    said = capsys.readouterr()
    assert "the first 20 steps" in said.out
    assert said.err.startswith("Saving the film (Ctrl-C again")
    assert len(path.with_suffix(".actions").read_text().split()) == 20
    assert path.exists()


def test_a_film_may_be_shorter_than_the_game(savedir, monkeypatch, capsys, caplog):
    path = savedir / "short.gif"
    flags = ("--sample", f"--movie={path}")
    films.record(config(savedir, *flags, "--movie_steps=30"), StopSignals())
    assert capsys.readouterr().out == f"{path}: the first 30 steps of {BREAKOUT}\n"
    assert len(path.with_suffix(".actions").read_text().split()) == 30
    monkeypatch.setattr(movie_writer, "MAX_GIF_FRAMES", 20)
    films.record(config(savedir, *flags), StopSignals())
    assert "the first 20 steps" in capsys.readouterr().out
    assert "use .mp4 for long films" in caplog.text


def test_films_of_several_games_go_into_a_directory(savedir, tmp_path):
    trained = game_loop.Trained(None, "mine", "640", directory=tmp_path / "mine")
    path = films.movie_path(config(savedir, "--movie=films/"), trained, "ALE/Pong-v5", 2)
    assert path == Path("films/mine_640_ALE-Pong-v5.gif")
    one = config(savedir, "--movie=pong.gif")
    assert films.movie_path(one, trained, BREAKOUT, 1) == Path("pong.gif")
    with pytest.raises(UsageError, match="name a directory for 2 games"):
        films.movie_path(one, trained, BREAKOUT, 2)


def test_without_a_display_it_records_instead(savedir, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    film = savedir / "film.mp4"
    films.render(config(savedir, "--sample", f"--movie={film}"), StopSignals())
    assert "No display" in capsys.readouterr().err
    assert film.stat().st_size > 10_000


def test_a_window_shows_an_environment_that_forgets_its_render_mode(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make("tests.odd_games:Canvas-v0", render_mode="rgb_array").unwrapped
    window = HumanRendering(films.Captioned(env, "Canvas"))
    window.reset()
    window.close()


def test_a_window_shows_the_game_under_its_name_and_score(savedir, monkeypatch, capsys):
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(films, "frames_per_second", lambda _: 10_000)
    films.render(config(savedir, "--sample", "--num_episodes=1"), StopSignals())
    xpid, model, env, steps, score = capsys.readouterr().out.strip().split(",")
    assert (xpid, model, env) == ("mine", "640", BREAKOUT)
    assert int(steps) > 80  # Five lives.
    assert float(score) >= 0
