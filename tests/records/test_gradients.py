import torch

from torchbeast.records.profiling import STATISTICS, describe, describe_gradients


def test_statistics_of_a_gradient():
    statistics = describe(torch.tensor([[3.0, -4.0]])).tolist()
    assert dict(zip(STATISTICS, statistics, strict=True)) == {
        "norm": 5.0,
        "mean": -0.5,
        "std": 3.5,
        "max_abs": 4.0,
    }


def test_every_parameter_with_a_gradient_is_described():
    module = torch.nn.Linear(2, 1)
    assert describe_gradients(module) == {}
    (module(torch.ones(1, 2)) * 4).sum().backward()
    module.weight.grad = None
    assert describe_gradients(module) == {
        "bias/norm": 4.0,
        "bias/mean": 4.0,
        "bias/std": 0.0,
        "bias/max_abs": 4.0,
    }
