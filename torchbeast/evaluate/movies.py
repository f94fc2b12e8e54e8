"""Films: pictures into a GIF or an MP4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
from PIL import Image

from torchbeast.core.types import UsageError

# A GIF is put together in memory, 34 kB or more per picture.
MAX_GIF_FRAMES = 10_000


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


def check_movie_path(path: Path) -> None:
    """Raises UsageError if a film cannot have this name."""
    if path.suffix not in (".gif", ".mp4"):
        raise UsageError(f"Movies are .gif or .mp4, not {path.name}")


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
        self._pictures: list[Any] = []
        self._palette = Palette()
        self._mp4: Any = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._temporary.touch()
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error}") from error

    def __enter__(self) -> MovieWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if self._mp4 is not None:
                self._mp4.close()
            elif self._pictures and kind is None:
                self._save_gif()
            if kind is None and (self._pictures or self._mp4 is not None):
                self._temporary.replace(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    @property
    def is_full(self) -> bool:
        """Whether the film has its greatest length."""
        return len(self._pictures) >= MAX_GIF_FRAMES

    def append(self, picture: np.ndarray) -> None:
        """Adds a picture, uint8 ``[H, W, 3]``."""
        if self._path.suffix == ".gif":
            self._pictures.append(self._palette.apply(picture))
            return
        if self._mp4 is None:
            # Even sizes, as the codec wants, without rescaling to multiples of 16.
            self._mp4 = imageio.get_writer(
                self._temporary, fps=self._fps, codec="libx264", quality=8, macro_block_size=2
            )
        self._mp4.append_data(picture)

    def _save_gif(self) -> None:
        # GIFs count in hundredths of a second: rounding the times keeps the speed exact.
        times = np.round(np.arange(len(self._pictures) + 1) * 100 / self._fps)
        self._pictures[0].save(
            self._temporary,
            save_all=True,
            append_images=self._pictures[1:],
            duration=(np.diff(times) * 10).astype(int).tolist(),
            loop=0,
            optimize=False,
        )
