"""Child processes as they are used: every task here runs in a real one."""

import functools
import os
import sys

import psutil
import pytest

from tests.runtime.tasks import hang, live_slowly, succeed
from torchbeast.core.types import RunError, UsageError
from torchbeast.envs import DEFAULT_OBSERVATION, RandomPlayConfig
from torchbeast.envs.random_play import measure_game
from torchbeast.runtime.isolation import run_isolated


def modules_and_pid(alive):
    return "torch" in sys.modules, os.getpid()


def misuse(alive):
    raise UsageError("no such thing")


def identity(value, alive):
    return value


@pytest.fixture(autouse=True)
def no_child_is_left():
    """No child is there after a test that was not there before, but multiprocessing's own."""
    before = psutil.Process().children(recursive=True)
    yield
    left = set(psutil.Process().children(recursive=True)) - set(before)
    commands = [" ".join(child.cmdline()) for child in left]
    assert [command for command in commands if "resource_tracker" not in command] == []


def test_results_of_several_processes_have_the_order_of_the_tasks():
    tasks = {str(i): functools.partial(identity, i) for i in range(7)}
    told = []
    results = run_isolated(tasks, num_processes=3, on_progress=told.append)
    assert list(results.items()) == [(str(i), i) for i in range(7)]
    assert told[-1] == 7


def test_a_child_is_another_process_without_torch():
    import torch  # noqa: F401  This process has it.

    has_torch, pid = run_isolated({"a": modules_and_pid})["a"]
    assert not has_torch
    assert pid != os.getpid()


def test_misuse_is_told_as_such():
    with pytest.raises(UsageError, match=r"^no such thing$"):
        run_isolated({"a": misuse})


def test_a_slow_task_that_is_alive_is_waited_for():
    assert run_isolated({"a": live_slowly}, deadline_s=1.5) == {"a": "done"}


def test_a_task_that_hangs_is_given_up():
    tasks = {"fine": succeed, "stuck": hang}
    with pytest.raises(RunError, match=r"^stuck: it hung for 2 s$"):
        run_isolated(tasks, deadline_s=2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Exits", "it called sys.exit\\('bye'\\)"),
        ("Crashes", "it was killed by signal 11"),
        ("Raises", "ZeroDivisionError: the third step"),
    ],
)
def test_whatever_a_task_does_is_one_line_with_its_name(name, message):
    env_id = f"tests.hostile:{name}-v0"
    play = RandomPlayConfig(DEFAULT_OBSERVATION, False, 0, 0.99, False)
    with pytest.raises(RunError, match=f"^{env_id}: {message}") as error:
        run_isolated({env_id: functools.partial(measure_game, env_id, play)})
    assert "\n" not in str(error.value)
