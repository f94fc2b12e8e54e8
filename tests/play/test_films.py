import io
import os
import signal
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play import films
from torchbeast.play import games as playing
from torchbeast.play.config import EvaluationConfig
from torchbeast.play.films import GifWriter, MovieWriter
from torchbeast.polybeast import make_parser
from torchbeast.records import checkpoint
from torchbeast.runtime.threads import StopSignals

BREAKOUT = "BreakoutNoFrameskip-v4"


@pytest.fixture
def savedir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", num_actions=4, tasks=(BREAKOUT,)))
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(tmp_path / "runs" / "mine" / "model.tar", {**contents, "steps": 640})
    return tmp_path / "runs"


def config(savedir, *more):
    flags = make_parser().parse_args(
        ["--savedir", str(savedir), "--xpid=mine", f"--env={BREAKOUT}", *more]
    )
    return EvaluationConfig.from_flags(vars(flags))


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
    signals = StopSignals()

    class Interrupting(films.MovieWriter):
        def append(self, picture):
            super().append(picture)
            if len(self._gif) == 20:
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


def test_a_film_may_be_shorter_than_the_game(savedir, monkeypatch, capsys):
    path = savedir / "short.gif"
    flags = ("--sample", f"--movie={path}")
    films.record(config(savedir, *flags, "--movie_steps=30"), StopSignals())
    assert capsys.readouterr().out == f"{path}: the first 30 steps of {BREAKOUT}\n"
    assert len(path.with_suffix(".actions").read_text().split()) == 30
    monkeypatch.setattr(films, "MAX_GIF_FRAMES", 20)
    films.record(config(savedir, *flags), StopSignals())
    assert "the first 20 steps" in (out := capsys.readouterr().out)
    assert "use .mp4 for long games" in out


def test_several_games_are_filmed_into_a_directory(savedir, tmp_path):
    trained = playing.Trained(None, "mine", "640", directory=tmp_path / "mine")
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


def test_a_window_shows_the_game_under_its_name_and_score(savedir, monkeypatch, capsys):
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(films, "frames_per_second", lambda _: 10_000)
    films.render(config(savedir, "--sample", "--num_episodes=1"), StopSignals())
    xpid, model, env, steps, score = capsys.readouterr().out.strip().split(",")
    assert (xpid, model, env) == ("mine", "640", BREAKOUT)
    assert int(steps) > 80  # Five lives.
    assert float(score) >= 0


def write_gif(pictures, fps=15):
    file = io.BytesIO()
    writer = GifWriter(file, fps)
    for picture in pictures:
        writer.append(picture)
    writer.close()
    return file


def read(file):
    """The pictures as a viewer shows them, and how long each one is shown, in milliseconds."""
    with Image.open(file) as film:
        shown = [
            (np.asarray(p.convert("RGB")), p.info["duration"]) for p in ImageSequence.Iterator(film)
        ]
    return zip(*shown, strict=True)


def moving_squares(count):
    """Pictures in which a square moves, and with it a few of many colours."""
    random = np.random.default_rng(0)
    palette = random.integers(0, 256, (100, 3), np.uint8)
    for i in range(count):
        picture = np.zeros((40, 30, 3), np.uint8)
        picture[i : i + 5, 10:20] = palette[random.integers(100, size=(5, 10))]
        yield picture


def test_every_picture_is_exact_wherever_it_differs_from_the_one_before():
    pictures = list(moving_squares(30))
    shown, durations = read(write_gif(pictures))
    assert np.array_equal(shown, pictures)
    assert sum(durations) == 2000


def test_equal_pictures_in_a_row_are_one_that_is_shown_longer():
    first, second = moving_squares(2)
    shown, durations = read(write_gif([first] * 3 + [second] + [first] * 2, fps=10))
    assert np.array_equal(shown, [first, second, first])
    assert durations == (300, 100, 200)


def write(path, count=30):
    with MovieWriter(path, 15) as movie:
        for picture in moving_squares(count):
            movie.append(np.repeat(np.repeat(picture, 4, axis=0), 4, axis=1))


def test_mp4_keeps_size_length_and_nearly_the_colours(tmp_path):
    write(tmp_path / "a.mp4")
    frames = imageio.imread(tmp_path / "a.mp4")
    assert frames.shape == (30, 160, 120, 3)
    expected = np.array(list(moving_squares(30)))
    assert np.abs(frames[:, ::4, ::4].astype(int) - expected).mean() < 5
    assert imageio.immeta(tmp_path / "a.mp4")["fps"] == 15


def test_a_film_that_failed_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"before")
    movie = MovieWriter(path, 15)
    with pytest.raises(ZeroDivisionError), movie:
        movie.append(1 / 0)
    assert path.read_bytes() == b"before"
    write(path, count=0)  # Nor does a film without pictures.
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.gif"]
