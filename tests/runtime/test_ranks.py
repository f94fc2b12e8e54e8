import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.runtime.ranks import OWN_ERRORS, VARIABLES, Ranks, read_ranks


@pytest.fixture
def torchrun(monkeypatch):
    """Sets the variables that torchrun sets."""

    def set_variables(*values):
        monkeypatch.setenv("MASTER_ADDR", "localhost")
        monkeypatch.setenv("MASTER_PORT", "29500")
        for name, value in zip(VARIABLES, values, strict=False):
            monkeypatch.setenv(name, str(value))

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return set_variables


def test_without_torchrun_a_process_is_alone(torchrun):
    ranks = read_ranks()
    assert (ranks.index, ranks.count, ranks.is_first) == (0, 1, True)


@pytest.mark.parametrize(("values", "local"), [((5, 8, 1, 4), (1, 4)), ((5, 8), (0, 1))])
def test_torchrun_says_which_rank_this_is(torchrun, values, local):
    torchrun(*values)  # Other launchers leave out the local rank.
    ranks = read_ranks()
    assert (ranks.index, ranks.count, ranks.local_index, ranks.local_count) == (5, 8, *local)
    assert not ranks.is_first


@pytest.mark.parametrize("values", [(8, 8, 0, 1), (0, 2, 2, 2), (0, 2, 0, 4), ("x", 2, 0, 1)])
def test_variables_that_do_not_fit_are_refused(torchrun, values):
    torchrun(*values)
    with pytest.raises(UsageError, match=f"RANK={values[0]}, WORLD_SIZE={values[1]}"):
        read_ranks()


def test_a_rank_without_the_other_variables_is_refused(torchrun, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(UsageError, match="MASTER_ADDR, MASTER_PORT, WORLD_SIZE are not: start"):
        read_ranks()


@pytest.mark.parametrize("kind", OWN_ERRORS)
def test_an_error_of_this_ranks_device_is_not_blamed_on_another_rank(kind, monkeypatch):
    def fail(_):
        raise kind("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch, "cat", fail)
    with pytest.raises(kind, match="illegal memory access"):
        Ranks(count=2).all_reduce([torch.zeros(1)])
