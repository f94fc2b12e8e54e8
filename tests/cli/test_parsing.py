import argparse
from pathlib import Path

import pytest

from torchbeast import monobeast, polybeast, polybeast_env
from torchbeast.cli.parsing import agent_type, directory, file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rn", "resnet"),
        ("Res_Net", "resnet"),
        ("attention_augmented", "aaa"),
        ("my.module:Net", "my.module:Net"),
    ],
)
def test_agents_have_the_names_of_2019_too(text, expected):
    assert agent_type(text) == expected
    for module in (polybeast, monobeast):
        assert module.make_parser().parse_args(["--agent_type", text]).agent_type == expected


def test_variables_in_a_directory_are_expanded(monkeypatch):
    monkeypatch.setenv("PLACE", "/some/where")
    monkeypatch.setenv("HOME", "/home/me")
    assert directory("$PLACE/runs") == directory("${PLACE}/runs") == "/some/where/runs"
    assert directory("~/runs") == "/home/me/runs"
    with pytest.raises(argparse.ArgumentTypeError, match=r"no environment variable \$NOWHERE"):
        directory("$NOWHERE/runs")
    assert polybeast.make_parser().parse_args(["--savedir=$PLACE"]).savedir == "/some/where"
    assert polybeast.make_parser().parse_args([]).savedir == "/home/me/logs/torchbeast"


def test_servers_accept_the_flag_of_2019():
    assert polybeast_env.make_parser().parse_args(["--multitask", "--env=six"]).multitask


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--epsilon=0"], "must be above 0"),
        (["--num_actors=-1"], "must be at least 1"),
        (["--xpid="], "is empty"),
        (["--savedir="], "is empty"),
        (["test"], "perhaps you meant --mode test"),
        ([f"--seed={2**63}"], "must be less than 2^63"),
        (["--total_step", "5"], "perhaps you meant --total_steps"),
        (["--use-popart"], "perhaps you meant --use_popart"),
        (["--env", "Pong", "Breakout"], "separated by commas"),
    ],
)
def test_a_mistake_is_one_line_with_a_hint(assert_misuse, arguments, hint):
    assert_misuse(polybeast.make_parser().parse_args, arguments, hint)


@pytest.mark.parametrize(
    ("arguments", "shown", "hidden"),
    [
        (["--help"], "--total_steps", "--num_episodes"),
        (["--mode=test", "--help"], "--num_episodes", "--total_steps"),
        (["--help_all"], "--max_learner_queue_size", None),
    ],
)
def test_help_shows_what_matters_in_the_mode(capsys, arguments, shown, hidden):
    with pytest.raises(SystemExit):
        polybeast.make_parser().parse_args(arguments)
    text = capsys.readouterr().out
    assert shown in text
    assert hidden is None or hidden not in text


def test_a_file_is_refused_by_its_name():
    assert file(".gif", ".mp4")("films/a.mp4") == Path("films/a.mp4")
    with pytest.raises(argparse.ArgumentTypeError, match="must end with"):
        file(".gif", ".mp4")("a.avi")
