import shlex
import sys
from importlib import import_module
from pathlib import Path

from torchbeast.train import make_plan
from torchbeast.train.outputs import describe_next


def test_a_finished_run_names_commands_that_its_programs_accept(make_config, monkeypatch):
    monkeypatch.setenv("PATH", "")  # The environment is not activated.
    config = make_config("--env=tests.moving_target:MovingTarget-v0", "--xpid=it's mine")
    title, *commands = describe_next(make_plan(config)).splitlines()
    assert title == "Next:"
    for command in commands:
        words = shlex.split(command)
        assert Path(words[0]).absolute() == Path(sys.executable)
        assert words[1] == "-m"
        flags = import_module(words[2]).make_parser().parse_args(words[3:])
        assert flags.xpid == "it's mine"
        assert Path(flags.savedir) == Path(config.output.savedir)
    assert all("--env tests.moving_target:MovingTarget-v0" in command for command in commands)
