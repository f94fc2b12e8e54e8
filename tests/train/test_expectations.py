import pytest

from torchbeast import monobeast, polybeast
from torchbeast.train import TrainingConfig
from torchbeast.train.bottleneck import find_expectation


def expectation(*arguments, module=polybeast, num_ranks=1):
    flags = module.make_parser().parse_args(arguments)
    return find_expectation(TrainingConfig.from_flags(vars(flags)), num_ranks)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--env=Pong"],
        ["--seed=3", "--xpid=run", "--savedir=/tmp", "--cores=1", "--num_servers=2"],
        ["--num_actors=16", "--learning_rate=0.0005"],  # The preset's own.
    ],
)
def test_a_run_like_the_measured_one_has_an_expectation(arguments):
    assert "18 of 21" in expectation("--preset=small", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--env=six"],
        ["--env=Pong,Breakout"],
        ["--env=ALE/Pong-v5"],
        ["--learning_rate=0.001"],
        ["--total_steps=1000"],
        ["--use_lstm"],
        ["--num_actors=4"],
        ["--preprocessing=machado"],
        ["--preset=default"],
    ],
)
def test_another_run_has_none(arguments):
    assert expectation("--preset=small", *arguments) is None


def test_several_ranks_were_not_measured():
    assert expectation("--preset=small", num_ranks=2) is None


def test_monobeast_was_not_measured():
    assert expectation("--preset=small", module=monobeast) is None
