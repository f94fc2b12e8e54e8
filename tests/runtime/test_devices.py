import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.runtime import devices
from torchbeast.runtime.devices import Devices, DeviceStream, choose_devices

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CPU = torch.device("cpu")


def pretend(monkeypatch, *names):
    """As if the machine had GPUs of these models."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)


@pytest.mark.parametrize(
    ("names", "acting"), [(["A"], 0), (["A", "A"], 1), (["A"] * 8, 1), (["A", "B"], 0)]
)
def test_the_second_gpu_acts_if_it_is_as_good_as_the_first(monkeypatch, names, acting):
    pretend(monkeypatch, *names)
    assert choose_devices() == Devices(torch.device("cuda", 0), torch.device("cuda", acting))


@pytest.mark.parametrize(("gpus", "expected"), [(2, [(0, 0), (1, 1)]), (3, [(0, 2), (1, 1)])])
def test_each_rank_learns_on_a_gpu_of_its_own(monkeypatch, gpus, expected):
    pretend(monkeypatch, *["A"] * gpus)
    ranks = [choose_devices(index=index, count=2) for index in range(2)]
    assert [(d.learner.index, d.inference.index) for d in ranks] == expected


def test_a_torch_without_cuda_beside_a_gpu_is_told(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(devices, "NVIDIA", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    choose_devices(disable_cuda=True)
    assert not caplog.text
    choose_devices()
    assert "The GPU is not used: this torch" in caplog.text


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    pretend(monkeypatch, "A")
    with pytest.raises(UsageError, match="2 ranks on this machine need as many GPUs, and it has 1"):
        choose_devices(index=0, count=2)
    assert choose_devices(disable_cuda=True, index=1, count=2) == Devices(CPU, CPU)


@needs_gpu
def test_an_uploaded_pinned_buffer_may_be_overwritten_at_once():
    device = choose_devices().learner
    stream = DeviceStream(device)
    buffer = torch.empty(1 << 24, dtype=torch.uint8, pin_memory=True)
    for value in range(20):
        buffer.fill_(value)
        (moved,) = stream.upload((buffer,))
        buffer.fill_(255)
        assert int(moved.min()) == int(moved.max()) == value


@needs_gpu
def test_a_download_waits_for_the_kernels_of_its_stream():
    device = choose_devices().inference
    stream = DeviceStream(device)
    with stream.active():
        (a,) = stream.upload((torch.ones(2048, 2048),))
        for _ in range(20):
            a = a @ a / 2048
        (result,) = stream.download((a,))
    assert result.device == CPU
    assert torch.allclose(result, torch.ones(2048, 2048))
