import numpy as np
import pytest

from torchbeast.play.pictures import HEADER_HEIGHT, caption


@pytest.mark.parametrize("text", ["Pong", "MontezumaRevenge", ""])
def test_a_caption_fits_above_a_narrow_picture(text):
    header = caption(np.zeros((10, 80, 3), np.uint8), text)[:HEADER_HEIGHT]
    assert header.any() == bool(text)
    assert not header[:, -2:].any()
