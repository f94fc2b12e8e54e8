import sys

import numpy as np
import pytest
from PIL import Image

from tools import mosaic
from torchbeast.evaluate.movies import MovieWriter

RED, GREEN, BLUE = ([255, 0, 0], [0, 255, 0], [0, 0, 255])


@pytest.fixture
def run(monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mosaic.py", *map(str, arguments)])
        return mosaic.main()

    return run


def write_film(path, colours, size=(6, 4)):
    with MovieWriter(path, 15) as movie:
        for colour in colours:
            movie.append(np.full((*size, 3), colour, np.uint8))
    return path


def test_films_run_side_by_side_until_the_longest_ends(tmp_path, run):
    films = [
        write_film(tmp_path / "a.gif", [RED, GREEN, BLUE]),
        write_film(tmp_path / "b.gif", [GREEN, RED]),
        write_film(tmp_path / "c.gif", [BLUE, RED, GREEN]),
    ]
    assert run(*films, "--columns=2", "--output", tmp_path / "all.gif") == 0
    with Image.open(tmp_path / "all.gif") as film:
        assert film.n_frames == 3
        assert film.size == (2 * 4 + mosaic.GAP, 2 * 6 + mosaic.GAP)
        film.seek(2)
        last = np.asarray(film.convert("RGB"))
    assert last[0, 0].tolist() == BLUE
    assert last[0, -1].tolist() == RED  # The second film's last picture.
    assert last[-1, 0].tolist() == GREEN
    assert not last[-1, -1].any()  # Nothing is left for the fourth place.
    assert not last[:, 4 : 4 + mosaic.GAP].any()


def test_a_picture_that_a_film_shows_longer_is_shown_as_long(tmp_path, run):
    films = [
        write_film(tmp_path / "a.gif", [RED, RED, RED, GREEN, GREEN, BLUE]),
        write_film(tmp_path / "b.gif", [RED, GREEN, BLUE, RED, GREEN, BLUE]),
    ]
    with Image.open(films[0]) as film:
        assert film.n_frames == 3
    shown = [picture[0, 0].tolist() for picture in mosaic.read_film(films[0], 15)]
    assert shown == [RED, RED, RED, GREEN, GREEN, BLUE]
    assert run(*films, "--output", tmp_path / "all.gif") == 0
    colours = [picture[0, 0].tolist() for picture in mosaic.read_film(tmp_path / "all.gif", 15)]
    assert colours == [RED, RED, RED, GREEN, GREEN, BLUE]


def test_a_smaller_film_stands_in_the_middle_of_its_place(tmp_path, run):
    films = [write_film(tmp_path / "a.gif", [RED], (8, 8)), write_film(tmp_path / "b.gif", [BLUE])]
    assert run(*films, "--shrink=2", "--output", tmp_path / "all.gif") == 0
    with Image.open(tmp_path / "all.gif") as film:
        picture = np.asarray(film.convert("RGB"))
    assert picture.shape == (4, 3 * 4 + 2 * mosaic.GAP, 3)
    place = picture[:, 4 + mosaic.GAP : 8 + mosaic.GAP]  # Has 4 rows and columns; the film 3 and 2.
    assert np.argwhere((place == BLUE).all(-1)).tolist() == [
        [row, column] for row in range(3) for column in (1, 2)
    ]


def test_another_file_is_one_line(tmp_path, run, capsys):
    (tmp_path / "a.gif").write_text("no film")
    assert run(tmp_path / "a.gif", "--output", tmp_path / "all.gif") == 2
    assert capsys.readouterr().err.count("\n") == 1
