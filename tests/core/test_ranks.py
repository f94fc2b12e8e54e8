"""Ranks that learn together learn what one process would learn from all of their rollouts."""

import subprocess
import sys

import pytest
import torch

from tests.conftest import ROOT
from tests.core import rank
from tests.core.rank import STEPS

PARTS = 4


def learn(directory, count):
    """Returns what each of ``count`` ranks saved."""
    outputs = [directory / f"{rank}.pt" for rank in range(count)]
    command = [sys.executable, "-m", "tests.core.rank", str(directory / "store")]
    ranks = [
        subprocess.Popen([*command, str(o), str(i), str(count), str(PARTS)], cwd=ROOT)
        for i, o in enumerate(outputs)
    ]
    try:
        assert [process.wait(timeout=120) for process in ranks] == [0] * count
    finally:
        for process in ranks:
            process.kill()
    return [torch.load(output) for output in outputs]


def tensors(state):
    for name, value in state["model_state_dict"].items():
        yield name, value
    for parameter, values in state["optimizer_state_dict"]["state"].items():
        for name, value in values.items():
            yield f"{parameter} {name}", torch.as_tensor(value)


def test_ranks_learn_as_one_process_and_stop_together(tmp_path):
    rank.main(None, tmp_path / "alone.pt", 0, 1, PARTS)
    alone = torch.load(tmp_path / "alone.pt")
    results = learn(tmp_path, 2)
    expected = dict(tensors(alone["state"]))
    assert "baseline.mu" in expected
    for result in results:
        assert len(result["stats"]) == STEPS  # One rank stopped all.
        state = dict(tensors(result["state"]))
        assert state.keys() == expected.keys()
        for name, value in state.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5, msg=name)
            # Ranks that drift apart would do so for ever.
            assert value.equal(dict(tensors(results[0]["state"]))[name])
        for name in ("steps", "learner_steps", "task_steps"):
            assert result["state"][name] == alone["state"][name]
        for step, expected_step in zip(result["stats"], alone["stats"], strict=True):
            assert step["episodes"] == expected_step["episodes"]
            for name in ("task_steps", "entropy", "grad_norm", "total_loss"):
                assert step[name] == pytest.approx(expected_step[name], rel=1e-4)
