import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from torchbeast.records.loggers import Loggers, RunInfo
from torchbeast.records.loggers.tensorboard import TensorBoardLogger


@pytest.fixture
def write(tmp_path):
    def run(steps, last_step=None):
        info = RunInfo("Pong", tmp_path, {"batch_size": 8, "env": "six"}, last_step)
        loggers = Loggers({"tensorboard": TensorBoardLogger()}, info)
        for step in steps:
            loggers.scalars({"losses/entropy": 1.0 / step}, step)
        loggers.close()
        events = EventAccumulator(str(tmp_path))
        events.Reload()
        return events

    return run


def test_the_flags_are_a_table(write):
    events = write([])
    (tag,) = (tag for tag in events.Tags()["tensors"] if tag.startswith("hyperparameters"))
    (event,) = events.Tensors(tag)
    (text,) = event.tensor_proto.string_val
    assert text.decode().splitlines()[2:] == ["| batch_size | 8 |", "| env | six |"]


def test_a_resumed_run_hides_what_came_after_its_checkpoint(write):
    write([10, 20, 30])
    events = write([25, 30], last_step=20)
    assert [event.step for event in events.Scalars("losses/entropy")] == [10, 20, 25, 30]


def test_a_run_that_begins_anew_hides_the_one_before(write):
    write([10, 20, 30])
    events = write([15, 25])
    assert [event.step for event in events.Scalars("losses/entropy")] == [15, 25]
