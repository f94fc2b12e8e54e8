import pytest

from torchbeast.cli.presets import PRESETS
from torchbeast.polybeast import make_parser


def parse(*arguments):
    return make_parser().parse_args(arguments)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_holds_flags_that_there_are(preset):
    flags = vars(parse("--preset", preset))
    assert flags["preset"] == preset
    for name, value in PRESETS[preset].items():
        assert flags[name] == value


def test_a_flag_that_is_given_wins():
    flags = parse("--unroll_length=33", "--preset=small")
    assert flags.unroll_length == 33
    assert flags.agent_type == "atari"


def test_without_a_preset_the_defaults_are_the_flags_own():
    parse("--preset=small")
    flags = vars(parse())
    assert flags.pop("preset") == "default"
    first = vars(parse("--preset=default"))
    assert first.pop("preset") == "default"
    assert flags == first
    assert flags["agent_type"] == "resnet"


def test_an_unknown_preset_names_those_there_are(capsys):
    with pytest.raises(SystemExit) as exit_:
        parse("--preset=tiny")
    assert exit_.value.code == 2
    assert "small" in capsys.readouterr().err
