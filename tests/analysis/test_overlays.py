import numpy as np
import pytest

from torchbeast.analysis.overlays import Grid, enlarge, scale_to


@pytest.mark.parametrize("density", [1, 3, 10])
@pytest.mark.parametrize("screen", [(210, 160), (168, 252)])
def test_a_cell_is_drawn_on_its_pixel(density, screen):
    row, column = 30 // density, 60 // density
    scores = np.zeros((-(-84 // density), -(-84 // density)), np.float32)
    scores[row, column] = 1
    drawn = enlarge(scores, Grid(84, 84, density), *screen)
    assert drawn.shape == screen
    rows, columns = np.indices(screen)
    centre = [(drawn * index).sum() / drawn.sum() for index in (rows, columns)]
    # The middle of the part of the screen that the pixel is made from.
    assert centre[0] == pytest.approx(30.5 * screen[0] / 84 - 0.5, abs=0.5)
    assert centre[1] == pytest.approx(60.5 * screen[1] / 84 - 0.5, abs=0.5)


def test_scores_are_drawn_in_proportion_up_to_the_peak():
    scores = np.array([[0.0, 1.0, 2.0, 8.0]])
    assert scale_to(scores, 4).tolist() == [[0, 0.25, 0.5, 1]]
    assert scale_to(scores, 0).tolist() == [[0, 0, 0, 0]]
