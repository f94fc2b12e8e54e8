"""Films: pictures into a GIF or an MP4."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np

from torchbeast.core.types import RunError, UsageError
from torchbeast.evaluate.gif import GifWriter

# Of longer films an MP4 is a tenth as large.
MAX_GIF_FRAMES = 10_000


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
                self._temporary, fps=self._fps, codec="libx264", quality=8, macro_block_size=2
            )
        self._mp4.append_data(picture)
