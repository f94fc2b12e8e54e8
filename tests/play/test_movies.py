import imageio.v3 as imageio
import numpy as np
import pytest
from PIL import Image

from torchbeast.core.types import RunError, UsageError
from torchbeast.play.films import MovieWriter

COLOURS = [(200, 72, 72), (66, 158, 130), (0, 0, 148)]


def pictures(count):
    for i in range(count):
        picture = np.zeros((210, 160, 3), np.uint8)
        picture[:, :80] = COLOURS[i % 3]
        yield picture


def write(path, count, fps):
    with MovieWriter(path, fps) as movie:
        for picture in pictures(count):
            movie.append(picture)


def test_gif_keeps_every_colour_and_the_speed(tmp_path):
    write(tmp_path / "a.gif", 30, 15)
    with Image.open(tmp_path / "a.gif") as gif:
        assert (gif.n_frames, gif.size) == (30, (160, 210))
        total = 0
        for i in range(gif.n_frames):
            gif.seek(i)
            total += gif.info["duration"]
            assert gif.convert("RGB").getpixel((10, 10)) == COLOURS[i % 3]
    assert total == 2000


def test_mp4_keeps_size_length_and_nearly_the_colours(tmp_path):
    write(tmp_path / "a.mp4", 30, 15)
    frames = imageio.imread(tmp_path / "a.mp4")
    assert frames.shape == (30, 210, 160, 3)
    assert np.abs(frames[4, 100, 10].astype(int) - COLOURS[1]).max() < 12
    assert imageio.immeta(tmp_path / "a.mp4")["fps"] == 15


def test_a_film_that_failed_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"before")
    movie = MovieWriter(path, 15)
    with pytest.raises(ZeroDivisionError), movie:
        movie.append(1 / 0)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.gif"]


def test_a_full_disk_leaves_no_part_of_a_film(tmp_path):
    (tmp_path / ".a.gif.tmp.gif").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"^Cannot write .*a\.gif: No space left"):
        write(tmp_path / "a.gif", 30, 15)
    assert not list(tmp_path.iterdir())


def test_a_film_without_pictures_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"before")
    write(path, 0, 15)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.gif"]


def test_other_kinds_of_films_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.gif or \.mp4"):
        MovieWriter(tmp_path / "a.avi", 15)
