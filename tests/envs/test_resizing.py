"""Pictures are the maximum of two screens, resized."""

import cv2
import numpy as np
import pytest

from torchbeast.envs.preprocessing import ScreenResizer


@pytest.mark.parametrize("size", [(84, 84), (210, 160), (300, 200)])
def test_all_sizes_can_be_had(size):
    screens = np.random.default_rng(0).integers(0, 256, (2, 210, 160), dtype=np.uint8)
    height, width = size
    expected = cv2.resize(screens.max(axis=0), (width, height), interpolation=cv2.INTER_AREA)
    picture = np.zeros((1, *size), np.uint8)
    ScreenResizer((210, 160), size).resize_maximum(screens, picture)
    np.testing.assert_array_equal(picture[0], expected)
