import operator
import threading

import pytest

from tests.threads import start
from torchbeast.core.batch_gate import BatchGate, LearnerClosed


def add(gate, part, learn=lambda batch: None, prepare=lambda: None):
    with gate.part(len(part)):
        batch = gate.deliver(part, len(part))
        if batch is not None:
            prepare()
            with gate.update():
                learn(batch)


def test_close_wakes_threads_that_wait():
    gate = BatchGate(1, operator.add)
    with gate.part(1):
        waiting, errors = start(add, gate, ["b"])
        gate.close()
        waiting.join()
    assert [type(error) for error in errors] == [LearnerClosed]


def test_a_run_can_be_saved_while_it_waits_for_other_processes():
    def save():
        with gate.without_update():
            saved.append(list(learned))

    def wait():
        entered.set()
        answered.wait()

    gate, learned, saved = BatchGate(1, operator.add), [], []
    entered, answered = threading.Event(), threading.Event()
    learning, _ = start(add, gate, ["a"], learned.append, wait)
    assert entered.wait(timeout=10)
    saving, _ = start(save)
    saving.join(timeout=10)
    assert saved == [[]]
    answered.set()
    learning.join()
    assert learned == [["a"]]


def test_the_next_batch_waits_until_the_update_has_ended():
    gate, begun = BatchGate(1, operator.add), threading.Event()
    with gate.part(1):
        gate.deliver(["a"], 1)
        waiting, _ = start(add, gate, ["b"], lambda _: None, begun.set)
        assert not begun.wait(timeout=0.3)
        with gate.update():
            assert not begun.wait(timeout=0.3)
    waiting.join(timeout=10)
    assert begun.is_set()


def test_nothing_is_learned_after_the_end():
    gate, learned = BatchGate(1, operator.add), []
    with pytest.raises(LearnerClosed):
        add(gate, ["a"], learned.append, gate.close)
    assert not learned


def test_one_failure_wakes_all_threads():
    def fail(_):
        raise ArithmeticError("no")

    def wait():
        waiting.append(start(add, gate, ["b"]))

    gate, waiting = BatchGate(1, operator.add), []
    with pytest.raises(ArithmeticError):
        add(gate, ["a"], fail, wait)
    ((thread, errors),) = waiting
    thread.join()
    with pytest.raises(LearnerClosed):
        add(gate, ["c"])
    assert [type(error) for error in errors] == [LearnerClosed]
