"""docs/flags.md says what the parsers say, and the parsers name every default."""

import argparse

import pytest

from tools import flag_reference
from torchbeast.__main__ import PROGRAMS

FLAGS = [
    pytest.param(action, id=f"{program}{flag_reference.first_name(action)}")
    for program in flag_reference.PROGRAMS
    for _, actions in flag_reference.list_groups(flag_reference.make_parser(program))
    for action in actions
]


def test_the_page_is_as_new_as_the_parsers():
    assert flag_reference.PAGE.read_text() == flag_reference.format_page(), (
        "run python tools/flag_reference.py"
    )


def test_every_program_with_flags_of_its_own_has_a_section():
    assert set(PROGRAMS) - set(flag_reference.PROGRAMS) == {"polybeast_learner"}
    page = flag_reference.PAGE.read_text()
    assert all(f"\n## {program}\n" in page for program in flag_reference.PROGRAMS)


@pytest.mark.parametrize("action", FLAGS)
def test_help_names_the_default(action):
    name, default, text = flag_reference.describe_flag(action)
    assert name
    assert default
    assert text.endswith(".")
    if action.default is None or isinstance(action.default, bool):
        return
    if isinstance(action.default, list):
        if action.dest != "comp_between":
            assert default == " ".join(action.default)
        return
    assert default.startswith(str(action.default))


@pytest.mark.parametrize("preset", ["small", "2019"])
def test_help_names_the_defaults_of_a_preset(preset, capsys):
    parser = flag_reference.make_parser("polybeast")
    with pytest.raises(SystemExit):
        parser.parse_args(["--preset", preset, "--help"])
    words = " ".join(capsys.readouterr().out.split())
    expected = {"small": "Agent steps to train for. (default: 2000000)"}
    expected["2019"] = "as in 2019. (default: batch)"
    assert expected[preset] in words


def test_a_default_that_the_help_does_not_name_is_an_error():
    parser = argparse.ArgumentParser()
    action = parser.add_argument("--size", type=int, default=3, help="A size.")
    with pytest.raises(ValueError, match="--size"):
        flag_reference.describe_flag(action)
