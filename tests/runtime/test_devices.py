import pytest
import torch

from torchbeast.runtime.devices import Devices, Lane, choose_devices

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CPU = torch.device("cpu")


def test_without_a_gpu_the_cpu_does_both():
    assert choose_devices(disable_cuda=True) == Devices(CPU, CPU)
    assert str(Devices(CPU, CPU)) == "learning and acting on cpu"


@pytest.mark.parametrize(("count", "acting"), [(1, 0), (2, 1), (8, 1)])
def test_the_second_gpu_acts_where_there_is_one(monkeypatch, count, acting):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    devices = choose_devices()
    assert devices == Devices(torch.device("cuda", 0), torch.device("cuda", acting))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (1, [(0, 0), (0, 0)]),
        (2, [(0, 0), (1, 1)]),
        (3, [(0, 2), (1, 1)]),
        (4, [(0, 2), (1, 3)]),
    ],
)
def test_each_rank_learns_on_a_gpu_of_its_own(monkeypatch, gpus, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    ranks = [choose_devices(index=index, count=2) for index in range(2)]
    assert [(d.learner.index, d.inference.index) for d in ranks] == expected


def test_to_the_cpu_tensors_pass_as_they_are():
    lane = Lane(CPU)
    tensors = (torch.ones(2), (torch.zeros(3), ()))
    with lane.active():
        assert lane.upload(tensors) is tensors
        assert lane.download(tensors) is tensors


@needs_gpu
def test_an_uploaded_pinned_buffer_may_be_overwritten_at_once():
    device = choose_devices().learner
    lane = Lane(device)
    buffer = torch.empty(1 << 24, dtype=torch.uint8, pin_memory=True)
    for value in range(20):
        buffer.fill_(value)
        (moved,) = lane.upload((buffer,))
        buffer.fill_(255)
        assert int(moved.min()) == int(moved.max()) == value


@needs_gpu
def test_a_download_waits_for_the_kernels_of_its_lane():
    device = choose_devices().inference
    lane = Lane(device)
    with lane.active():
        (a,) = lane.upload((torch.ones(2048, 2048),))
        for _ in range(20):
            a = a @ a / 2048
        (result,) = lane.download((a,))
    assert result.device == CPU
    assert torch.allclose(result, torch.ones(2048, 2048))
