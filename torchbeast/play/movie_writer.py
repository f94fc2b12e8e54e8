"""Writes films, ``.gif`` or ``.mp4``."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
from PIL import Image

from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime.text import first_line

log = logging.getLogger("torchbeast")

# A GIF is in memory until its end. Of longer films an MP4 is a tenth as large.
MAX_GIF_FRAMES = 2_000


class MovieWriter:
    """Writes pictures uint8 ``[H, W, 3]`` to a ``.gif`` or ``.mp4`` at ``fps``. A context manager.

    The file appears under its name when it is complete. A film without pictures leaves what was
    there.
    """

    def __init__(self, path: Path, fps: float) -> None:
        if path.suffix not in (".gif", ".mp4"):
            raise UsageError(f"Movies are .gif or .mp4, not {path.name}")
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp{path.suffix}")
        self._fps = fps
        self._gif: deque[Image.Image] = deque()
        self._mp4: Any = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._temporary, "wb")  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error}") from error

    def __enter__(self) -> MovieWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        is_complete = kind is None and (bool(self._gif) or self._mp4 is not None)
        try:
            with self._writing(), self._file:
                if self._mp4 is not None:
                    self._mp4.close()
                elif is_complete:
                    self._save_gif()
            if is_complete:
                self._temporary.replace(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    @property
    def is_full(self) -> bool:
        """Whether the film has its greatest length."""
        return len(self._gif) >= MAX_GIF_FRAMES

    def append(self, picture: np.ndarray) -> None:
        """Adds a picture, uint8 ``[H, W, 3]``, unless the film is full. Raises RunError if it
        cannot be written.
        """
        if self.is_full:
            return
        with self._writing():
            if self._path.suffix == ".gif":
                # Exact up to 256 colours. Games have at most 128.
                image = Image.fromarray(picture).convert("P", palette=Image.Palette.ADAPTIVE)
                self._gif.append(image)
            else:
                if self._mp4 is None:
                    # Even sizes, as the codec wants, without rescaling to multiples of 16.
                    self._mp4 = imageio.get_writer(
                        self._temporary, fps=self._fps, codec="libx264", macro_block_size=2
                    )
                self._mp4.append_data(picture)
        if self.is_full:
            log.warning(
                "%s ends after %s pictures; use .mp4 for long films",
                self._path,
                f"{MAX_GIF_FRAMES:,}",
            )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or first_line(error)
            raise RunError(f"Cannot write {self._path}: {reason}") from error

    def _save_gif(self) -> None:
        """Writes all pictures. Equal ones in a row become one that is shown longer."""
        # A GIF counts in hundredths of a second. Only these differences keep the film's speed.
        starts = [round(index * 100 / self._fps) for index in range(len(self._gif) + 1)]
        times = [10 * (end - start) for start, end in itertools.pairwise(starts)]
        first = self._gif.popleft()
        first.save(
            self._file,
            "GIF",
            save_all=True,
            # Pillow copies them: the originals go meanwhile.
            append_images=(self._gif.popleft() for _ in range(len(self._gif))),
            duration=times,
            loop=0,
            optimize=False,
        )
