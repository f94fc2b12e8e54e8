import pytest

from tests.threads import start
from torchbeast.core.batch_gate import BatchGate, LearnerClosed


def make_gate(batch_size, learn):
    return BatchGate(batch_size, lambda a, b: a + b, lambda whole: whole, learn, lambda: False)


def add(gate, part):
    with gate.part(len(part)):
        gate.deliver(part, len(part))


def test_close_wakes_threads_that_wait():
    gate = make_gate(1, lambda batch: None)
    with gate.part(1):
        waiting, errors = start(add, gate, ["b"])
        gate.close()
        waiting.join()
    assert [type(error) for error in errors] == [LearnerClosed]


def test_one_failure_wakes_all_threads():
    def fail(_):
        raise ArithmeticError("no")

    def enter():
        with gate.part(1):
            waiting.append(start(add, gate, ["b"]))
            gate.deliver(["a"], 1)

    gate, waiting = make_gate(1, fail), []
    with pytest.raises(ArithmeticError):
        enter()
    ((thread, errors),) = waiting
    thread.join()
    with pytest.raises(RuntimeError, match="another learner thread failed"):
        add(gate, ["c"])
    assert [str(error) for error in errors] == ["another learner thread failed"]
