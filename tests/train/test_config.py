import pytest

from torchbeast import monobeast, polybeast
from torchbeast.cli.config import flatten
from torchbeast.play.config import PlayConfig
from torchbeast.train import TrainingConfig


def parse(module, *arguments):
    return vars(module.make_parser().parse_args(arguments))


@pytest.mark.parametrize("module", [polybeast, monobeast])
def test_every_flag_reaches_a_configuration(module):
    flags = parse(module)
    training = flatten(TrainingConfig.from_flags(flags))
    evaluation = flatten(PlayConfig.from_flags(flags))
    assert set(flags) - {"mode"} <= set(training) | set(evaluation)


def test_every_field_of_a_configuration_has_a_flag():
    flags = {**parse(polybeast), **parse(monobeast)}
    training = flatten(TrainingConfig.from_flags(flags))
    # The task list that --env names, the record of all flags, and what no training may choose.
    assert set(training) - {"games", "args"} <= set(flags)
    assert set(flatten(PlayConfig.from_flags(flags))) - {"expected"} <= set(flags)


@pytest.mark.parametrize(("arguments", "num_actors"), [((), 16), (("--env=six",), 18)])
def test_by_default_every_game_has_the_environments_that_it_should(arguments, num_actors):
    assert TrainingConfig.from_flags(parse(polybeast, *arguments)).machine.num_actors == num_actors


@pytest.mark.parametrize(
    ("arguments", "clip_rewards"),
    [
        ((), True),
        (("--use_popart",), False),
        (("--use_popart", "--reward_clipping=abs_one"), True),
        (("--reward_clipping=none",), False),
    ],
)
def test_rewards_are_clipped_by_default_unless_popart_scales_them(
    make_config, arguments, clip_rewards
):
    assert make_config(*arguments).learning.loss.clip_rewards is clip_rewards
