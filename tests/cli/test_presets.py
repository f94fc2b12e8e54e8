import pytest

from torchbeast.cli.presets import PRESETS
from torchbeast.polybeast import make_parser


def parse(*arguments):
    return make_parser().parse_args(arguments)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_holds_flags_that_there_are(preset):
    default = vars(parse())
    assert PRESETS[preset].keys() <= default.keys()
    assert vars(parse("--preset", preset)) == {**default, **PRESETS[preset], "preset": preset}


def test_a_flag_that_is_given_wins():
    flags = parse("--unroll_length=33", "--preset=small")
    assert flags.unroll_length == 33
    assert flags.agent_type == "atari"
