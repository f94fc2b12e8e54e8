import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

from torchbeast.play import films as gif
from torchbeast.play.films import GifWriter


def write(pictures, fps=15):
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
    return [picture for picture, _ in shown], [duration for _, duration in shown]


def moving_squares(count, colours=100):
    """Pictures in which a square moves, and with it a few of many colours."""
    random = np.random.default_rng(0)
    palette = random.integers(0, 256, (colours, 3), np.uint8)
    for i in range(count):
        picture = np.zeros((40, 30, 3), np.uint8)
        picture[i : i + 5, 10:20] = palette[random.integers(colours, size=(5, 10))]
        yield picture


def test_every_picture_is_exact_wherever_it_differs_from_the_one_before():
    pictures = list(moving_squares(30))
    shown, durations = read(write(pictures))
    assert np.array_equal(shown, pictures)
    assert sum(durations) == 2000


def test_equal_pictures_in_a_row_are_one_that_is_shown_longer(monkeypatch):
    first, second = moving_squares(2)
    shown, durations = read(write([first] * 3 + [second] + [first] * 2, fps=10))
    assert np.array_equal(shown, [first, second, first])
    assert durations == [300, 100, 200]
    monkeypatch.setattr(gif, "MAX_DURATION", 25)
    shown, durations = read(write([first, *[second] * 4], fps=10))
    assert all(np.array_equal(picture, second) for picture in shown[1:])
    assert durations[0] == 100
    assert sum(durations[1:]) == 400


def test_more_colours_than_a_palette_has_are_nearly_right():
    picture = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    (shown,), _ = read(write([picture]))
    assert np.abs(shown.astype(int) - picture).mean() < 20


@pytest.mark.parametrize("fps", [7, 30, 60])
def test_the_speed_is_exact_over_the_whole_film(fps):
    _, durations = read(write(moving_squares(30), fps))
    assert sum(durations) == pytest.approx(30_000 / fps, abs=5)
