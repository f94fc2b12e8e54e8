import imageio.v3 as imageio
import numpy as np
import pytest
from PIL import Image, ImageSequence

from torchbeast.play import movie_writer
from torchbeast.play.movie_writer import MovieWriter


def write_movie(path, pictures, fps=15):
    with MovieWriter(path, fps) as movie:
        for picture in pictures:
            movie.append(picture)
    return path


def read(path):
    """The pictures as a viewer shows them, and how long each one is shown, in milliseconds."""
    with Image.open(path) as film:
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


def test_a_gif_has_a_greatest_length(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(movie_writer, "MAX_GIF_FRAMES", 2)
    shown, _ = read(write_movie(tmp_path / "a.gif", moving_squares(4)))
    assert len(list(shown)) == 2
    assert "a.gif ends after 2 pictures; use .mp4 for long films" in caplog.text


def test_every_picture_is_exact_wherever_it_differs_from_the_one_before(tmp_path):
    pictures = list(moving_squares(30))
    shown, durations = read(write_movie(tmp_path / "a.gif", pictures))
    assert np.array_equal(shown, pictures)
    assert sum(durations) == 2000


def test_equal_pictures_in_a_row_are_one_that_is_shown_longer(tmp_path):
    first, second = moving_squares(2)
    pictures = [first] * 3 + [second] + [first] * 2
    shown, durations = read(write_movie(tmp_path / "a.gif", pictures, fps=10))
    assert np.array_equal(shown, [first, second, first])
    assert durations == (300, 100, 200)


def test_a_film_may_have_one_picture(tmp_path):
    picture = next(moving_squares(1))
    with Image.open(write_movie(tmp_path / "a.gif", [picture])) as film:
        assert np.array_equal(film.convert("RGB"), picture)


def write(path, count=30):
    pictures = (picture.repeat(4, axis=0).repeat(4, axis=1) for picture in moving_squares(count))
    return write_movie(path, pictures)


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
