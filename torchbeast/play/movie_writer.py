"""Writes films, ``.gif`` or ``.mp4``, picture by picture."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import cv2
import imageio.v2 as imageio
import numpy as np
from PIL import GifImagePlugin, Image

from torchbeast.core.types import RunError, UsageError
from torchbeast.play.config import check_movie_path

# The longest time of one picture in a GIF, in hundredths of a second (16 bits).
MAX_DURATION = 65_535
LOOP_FOR_EVER = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
TRAILER = b";"


class Palette:
    """Numbers the colours of a film as they turn up. Games have at most 128 of them."""

    def __init__(self) -> None:
        self._colours: list[int] = []
        # One past the number of each packed colour; 0: not seen yet.
        self._numbers = np.zeros(1 << 24, np.uint16)

    def apply(self, picture: np.ndarray) -> Image.Image:
        """Converts a picture to the palette, exactly while there are at most 256 colours."""
        red, green, blue = (picture[..., i].astype(np.uint32) for i in range(3))
        packed = red << 16 | green << 8 | blue
        numbers = self._numbers[packed]
        if not numbers.all():
            new = np.unique(packed[numbers == 0])
            if len(self._colours) + len(new) > 256:
                return Image.fromarray(picture).quantize(256)
            self._numbers[new] = len(self._colours) + 1 + np.arange(len(new))
            self._colours += new.tolist()
            numbers = self._numbers[packed]
        image = Image.fromarray((numbers - 1).astype(np.uint8))
        image.putpalette([c >> shift & 255 for c in self._colours for shift in (16, 8, 0)])
        return image


class GifWriter:
    """Writes pictures of one size. Keeps one of them, whatever the length of the film.

    Of each picture the part that differs from the one before is written. Equal pictures in a row
    are one that is shown longer.
    """

    def __init__(self, file: IO[bytes], fps: float) -> None:
        """Begins a film without pictures.

        Args:
            file: open for writing.
            fps: pictures per second. A GIF counts in hundredths of a second; the times of pictures
                are rounded, so that the speed of the film is exact.
        """
        self._file = file
        self._fps = fps
        self._palette = Palette()
        self._count = 0
        self._last: np.ndarray | None = None
        # The part of the last picture that is to be written, where it stands, and since when.
        self._part: Image.Image | None = None
        self._offset = (0, 0)
        self._since = 0

    def __len__(self) -> int:
        return self._count

    def append(self, picture: np.ndarray) -> None:
        """Adds a picture, uint8 ``[H, W, 3]``."""
        height, width = picture.shape[:2]
        box = (0, 0, width, height)
        if self._last is None:
            # Without a common palette: every picture brings the colours that are known by then.
            self._file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0x70, 0, 0))
            self._file.write(LOOP_FOR_EVER)
        else:
            rows, columns = np.nonzero((picture != self._last).any(axis=-1))
            if not len(rows):
                self._count += 1
                return
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            self._write_part()
        left, top, right, bottom = map(int, box)
        self._part = self._palette.apply(np.ascontiguousarray(picture[top:bottom, left:right]))
        self._offset = (left, top)
        self._since = self._count
        self._last = picture.copy()
        self._count += 1

    def close(self) -> None:
        """Writes the last picture and the end of the film. The file stays open."""
        self._write_part()
        self._file.write(TRAILER)

    def _write_part(self) -> None:
        assert self._part is not None
        duration = self._time(self._count) - self._time(self._since)
        while duration > MAX_DURATION:
            self._write(self._part, MAX_DURATION)
            duration -= MAX_DURATION
        self._write(self._part, duration)

    def _time(self, index: int) -> int:
        """Hundredths of a second from the start of the film to a picture."""
        return round(index * 100 / self._fps)

    def _write(self, part: Image.Image, duration: int) -> None:
        data = GifImagePlugin.getdata(
            part, self._offset, duration=10 * duration, include_color_table=True
        )
        self._file.write(b"".join(data))


# Of longer films an MP4 is a tenth as large.
MAX_GIF_FRAMES = 10_000


class MovieWriter:
    """Writes pictures uint8 ``[H, W, 3]`` to a ``.gif`` or ``.mp4`` at ``fps``. A context manager.

    The file appears under its name when it is complete. A film without pictures leaves what was
    there.
    """

    def __init__(self, path: Path, fps: float) -> None:
        check_movie_path(path)
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp{path.suffix}")
        self._fps = fps
        self._gif: GifWriter | None = None
        self._mp4: Any = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._temporary, "wb")  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error}") from error

    def __enter__(self) -> MovieWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        is_complete = kind is None and (self._gif is not None or self._mp4 is not None)
        try:
            with self._writing(), self._file:
                if self._mp4 is not None:
                    self._mp4.close()
                elif self._gif is not None and is_complete:
                    self._gif.close()
            if is_complete:
                self._temporary.replace(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    @property
    def is_full(self) -> bool:
        """Whether the film has its greatest length."""
        return self._gif is not None and len(self._gif) >= MAX_GIF_FRAMES

    def append(self, picture: np.ndarray) -> None:
        """Adds a picture, uint8 ``[H, W, 3]``. Raises RunError if it cannot be written."""
        with self._writing():
            self._append(picture)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"Cannot write {self._path}: {error.strerror or error}") from error

    def _append(self, picture: np.ndarray) -> None:
        if self._path.suffix == ".gif":
            if self._gif is None:
                self._gif = GifWriter(self._file, self._fps)
            self._gif.append(picture)
            return
        if self._mp4 is None:
            # Even sizes, as the codec wants, without rescaling to multiples of 16.
            self._mp4 = imageio.get_writer(
                self._temporary, fps=self._fps, codec="libx264", macro_block_size=2
            )
        self._mp4.append_data(picture)


HEADER_HEIGHT = 24


def magnify(picture: np.ndarray, factor: int = 2) -> np.ndarray:
    """Enlarges ``[H, W, ...]``: every pixel becomes a square of ``factor`` pixels."""
    return picture.repeat(factor, 0).repeat(factor, 1)


def side_by_side(pictures: Sequence[np.ndarray], gap: int = 4) -> np.ndarray:
    """Joins pictures of one height in a row."""
    height = pictures[0].shape[0]
    divider = np.zeros((height, gap, 3), np.uint8)
    row = [pictures[0]]
    for picture in pictures[1:]:
        row += [divider, picture]
    return np.concatenate(row, axis=1)


def caption(picture: np.ndarray, text: str, height: int = HEADER_HEIGHT) -> np.ndarray:
    """Adds a line of text above a picture."""
    header = np.zeros((height, picture.shape[1], 3), np.uint8)
    cv2.putText(
        header,
        text,
        (6, height - 7),
        cv2.FONT_HERSHEY_SIMPLEX,
        0.45,
        (255, 255, 255),
        1,
        cv2.LINE_AA,
    )
    return np.concatenate([header, picture])
