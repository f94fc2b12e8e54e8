"""Screens are resized alike, to the bit, with the kernel and with OpenCV."""

import cv2
import numpy as np
import pytest

from tests.kernels import needs_kernels
from torchbeast.envs.preprocessing import ScreenResizer
from torchbeast.runtime import kernels

SIZES = [((210, 160), (84, 84)), ((210, 160), (42, 50)), ((210, 160), (8, 1)), ((5, 3), (2, 2))]


def make_screens(size):
    return np.random.default_rng(0).integers(0, 256, (2, *size), dtype=np.uint8)


def by_opencv(screens, size):
    height, width = size
    return cv2.resize(screens.max(axis=0), (width, height), interpolation=cv2.INTER_AREA)


@needs_kernels
@pytest.mark.parametrize(("screen_size", "size"), SIZES)
def test_kernel_agrees_with_opencv(screen_size, size, monkeypatch):
    monkeypatch.setattr(cv2, "max", None)  # The kernel is what runs.
    resizer = ScreenResizer(screen_size, size, colour=False)
    for divisor in (1, 50):
        # Few values, too: their means are often halves, which are rounded to even.
        screens = make_screens(screen_size) // divisor * divisor
        picture = np.zeros((1, *size), np.uint8)
        expected = by_opencv(screens, size)
        resizer.resize_maximum(screens, picture)
        np.testing.assert_array_equal(picture[0], expected)


@pytest.mark.parametrize("size", [(84, 84), (210, 160), (300, 200)])
def test_all_sizes_can_be_had_without_the_kernel(size, monkeypatch):
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    screens = make_screens((210, 160))
    expected = by_opencv(screens, size)
    picture = np.zeros((1, *size), np.uint8)
    ScreenResizer((210, 160), size, colour=False).resize_maximum(screens, picture)
    np.testing.assert_array_equal(picture[0], expected)
