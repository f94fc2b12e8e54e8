import pytest

from torchbeast.train.pipeline import make_batcher


@pytest.mark.parametrize("num_actors", [1, 16, 4096])
def test_any_number_of_environments_has_a_batcher(num_actors):
    make_batcher(num_actors).close()
