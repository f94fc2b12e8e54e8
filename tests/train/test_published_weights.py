import threading

import pytest
import torch

from torchbeast.runtime.devices import DeviceStream, choose_devices
from torchbeast.train.published_weights import PublishedWeights

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_readers_keep_what_they_began_with():
    module = torch.nn.Linear(1, 1)
    weights = PublishedWeights(lambda: torch.nn.Linear(1, 1), num_readers=1)
    module.weight.data.fill_(1.0)
    weights.publish(module, 1)
    with weights.reading() as (copy, version):
        assert (copy.weight.item(), version) == (1.0, 1)
        for later in (2, 3):  # Once would leave a copy that nobody reads in any case.
            module.weight.data.fill_(float(later))
            weights.publish(module, later)
        assert copy.weight.item() == 1.0
    with weights.reading() as (copy, version):
        assert (copy.weight.item(), version) == (3.0, 3)


def test_no_reader_ever_sees_half_an_update():
    module = torch.nn.Linear(1000, 100)
    weights = PublishedWeights(lambda: torch.nn.Linear(1000, 100), num_readers=2)
    stop = threading.Event()
    torn = []

    def read():
        while not stop.is_set():
            with weights.reading() as (copy, version):
                if version and not bool((copy.weight == float(version)).all()):
                    torn.append(version)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(1, 300):
        module.weight.data.fill_(float(version))
        weights.publish(module, version)
    stop.set()
    for reader in readers:
        reader.join()
    assert not torn


@needs_gpu
def test_readers_on_other_streams_see_whole_weights():
    device = choose_devices().learner

    class Weights(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("values", torch.zeros(1 << 24, device=device))

    learner = Weights()
    published = PublishedWeights(Weights, num_readers=1)
    stream = DeviceStream(device)
    for version in range(1, 50):
        learner.values.fill_(version)
        published.publish(learner, version)
        with stream.active(), published.reading() as (copy, read):
            low, high = stream.download((copy.values.min(), copy.values.max()))
        assert float(low) == float(high) == read == version
