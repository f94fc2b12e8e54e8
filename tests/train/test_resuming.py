import copy
import math

import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.records import checkpoint
from torchbeast.train import prepare
from torchbeast.train.start import resume_or_start


def files(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def remove(*keys):
    def change(contents):
        for key in keys[:-1]:
            contents = contents[key]
        del contents[keys[-1]]

    return change


def put(value, *keys):
    def change(contents):
        for key in keys[:-1]:
            contents = contents[key]
        contents[keys[-1]] = value

    return change


def test_the_message_names_the_weight_that_does_not_fit(make_config, change):
    change(remove("model_state_dict", "policy.weight"))
    with pytest.raises(UsageError, match=r'is damaged \(Missing key.*"policy.weight"'):
        resume_or_start(prepare(make_config()))


def make_like_2019(contents):
    for name in set(contents) - {"model_state_dict", "optimizer_state_dict"}:
        del contents[name]


DAMAGE = {
    "weights missing": remove("model_state_dict", "policy.weight"),
    "weights of another shape": put(torch.zeros(3), "model_state_dict", "policy.bias"),
    "weights that are not finite": put(
        torch.full((4,), math.nan), "model_state_dict", "policy.bias"
    ),
    "agent": put(7, "agent"),
    "steps": put(1.5, "steps"),
    "task_steps": put([1, 2], "task_steps"),
    "seed": put("5", "seed"),
    "optimizer": put([], "optimizer_state_dict"),
    "averages of another shape": put(
        torch.zeros(3), "optimizer_state_dict", "state", 0, "square_avg"
    ),
    "random state": put(torch.zeros(3), "random_state"),
    "progress": put([], "progress"),
}


@pytest.fixture
def change(finished_run):
    """Changes the checkpoint of a finished run; returns its directory."""

    def apply(change_contents):
        path = finished_run / "model.tar"
        contents = copy.deepcopy(checkpoint.load(path))
        change_contents(contents)
        torch.save(contents, path)
        return finished_run

    return apply


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_a_damaged_checkpoint_is_one_line_and_nothing_is_written(make_config, change, damage):
    run = change(damage)
    before = files(run)
    with pytest.raises(
        UsageError, match=r"is damaged .*: choose another one, or move it away to start anew"
    ) as error:
        resume_or_start(prepare(make_config()))
    assert "\n" not in str(error.value)
    assert files(run) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            remove("optimizer_state_dict"),
            "has no optimizer state, because it is a copy from intermediate/",
        ),
        (make_like_2019, "of the program of 2019; its optimizer state has another format"),
    ],
)
def test_what_holds_weights_alone_can_be_begun_from(make_config, change, damage, message):
    run = change(damage)
    with pytest.raises(UsageError, match=message + ".*--init_from .*model.tar") as error:
        resume_or_start(prepare(make_config()))
    assert "\n" not in str(error.value)
    config = make_config("--xpid=other", f"--init_from={run / 'model.tar'}")
    state = resume_or_start(prepare(config))
    assert state.initialisation.source.path == run / "model.tar"


def test_what_an_earlier_version_did_not_save_is_not_missed(make_config, change):
    def age(contents):
        for name in ("progress", "seed", "random_state"):
            del contents[name]
        del contents["agent"]["lstm_reset"]

    change(age)
    assert resume_or_start(prepare(make_config())).steps == 40
