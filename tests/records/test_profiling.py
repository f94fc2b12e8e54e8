import json

import torch

from torchbeast.records.profiling import StepTrace, describe_gradients


def trace(path, begin):
    """Traces a run that does an operation of its own in every learner step, and returns them."""
    step_trace = StepTrace(path, skipped=2, num_steps=3)
    written = []
    for step in range(begin, begin + 9):
        if step_trace.update(step):
            written.append(step)
        with torch.profiler.record_function(f"step {step - begin}"):
            torch.ones(3)
    step_trace.close()
    names = {event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]}
    return written, sorted(name for name in names if name.startswith("step "))


def test_some_steps_after_the_start_are_traced(tmp_path):
    written, steps = trace(tmp_path / "trace.json", begin=1000)
    assert steps == ["step 2", "step 3", "step 4"]
    assert written == [1005]


def test_a_run_that_ends_before_leaves_no_trace(tmp_path):
    step_trace = StepTrace(tmp_path / "trace.json")
    assert not step_trace.update(1)
    step_trace.close()
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_cannot_be_written_is_not_announced(tmp_path):
    step_trace = StepTrace(tmp_path / "missing" / "trace.json", skipped=0, num_steps=1)
    assert [step_trace.update(step) for step in (1, 2, 3)] == [False, False, False]


def test_every_parameter_with_a_gradient_is_described():
    module = torch.nn.Linear(2, 1)
    assert describe_gradients(module) == {}
    module.weight.grad = torch.tensor([[3.0, -4.0]])
    statistics = {"norm": 5.0, "mean": -0.5, "std": 3.5, "max_abs": 4.0}
    assert describe_gradients(module) == {f"weight/{k}": v for k, v in statistics.items()}
