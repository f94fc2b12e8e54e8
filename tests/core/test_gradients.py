import csv

import pytest
import torch

from torchbeast.core.gradients import GradientTracker, describe


def test_statistics_of_a_gradient():
    assert describe(torch.tensor([[3.0, -4.0]])) == {
        "norm": 5.0,
        "mean": -0.5,
        "std": 3.5,
        "max_abs": 4.0,
    }


def test_a_row_per_so_many_learner_steps(tmp_path):
    module = torch.nn.Linear(2, 1)
    tracker = GradientTracker(tmp_path / "gradients.csv", every=2)
    for learner_step in range(1, 5):
        module.zero_grad()
        (module(torch.ones(1, 2)) * learner_step).sum().backward()
        scalars = tracker.track(module, learner_step, learner_step * 10)
        assert bool(scalars) == (learner_step % 2 == 0)
    assert scalars["gradients/bias/mean"] == 4.0
    with open(tmp_path / "gradients.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["20", "40"]
    assert float(rows[0]["weight/norm"]) == pytest.approx(2 * 2**0.5)
