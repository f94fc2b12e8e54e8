"""Every command in the README does what it says, with a few steps instead of millions."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from torchbeast.cli.flags import DEFAULT_ENV
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint

ROOT = Path(__file__).parent.parent
# Appended, so that they win.
SHORT_TRAINING = ["--total_steps=400", "--agent_type=atari", "--unroll_length=20", "--num_actors=6"]
SHORT_TEST = ["--num_episodes=1", "--sample"]


def blocks():
    """The indented lines of the README that are commands."""
    for line in (ROOT / "README.md").read_text().splitlines():
        if re.match(r"    (make|python|pip|TORCHBEAST)", line):
            yield line.split("#")[0].strip()


COMMANDS = list(blocks())


def polybeast_arguments(command):
    """What a command passes to torchbeast.polybeast; None if it does not run it."""
    if command.startswith("make train"):
        words = shlex.split(command)
        arguments = [w.removeprefix("ARGS=") for w in words[2:]]
        return ["--preset", "small", *shlex.split("".join(arguments))]
    if command.startswith("python -m torchbeast.polybeast "):
        return shlex.split(command)[3:]
    return None


def test_the_readme_has_its_commands():
    assert {"make train", "make test", "pip install ."} <= set(COMMANDS)
    assert sum(polybeast_arguments(c) is not None for c in COMMANDS) >= 5


@pytest.fixture(scope="module")
def savedir(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


EXPECTED = {"train": "steps; run in", "test": "human", "record": "pong.mp4"}
EXPECTED["test_render"] = f"_{DEFAULT_ENV}.gif"  # No display here.


# In the order of the README: what it trains is what it tests.
@pytest.mark.parametrize("command", [c for c in COMMANDS if polybeast_arguments(c) is not None])
def test_polybeast_commands_run(start, savedir, command, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    arguments = polybeast_arguments(command)
    mode = arguments[arguments.index("--mode") + 1] if "--mode" in arguments else "train"
    short = SHORT_TRAINING if mode == "train" else SHORT_TEST
    code, out, err = start(
        "polybeast", *arguments, "--savedir", savedir, *short, cwd=savedir
    ).finish()
    assert code == 0, err
    assert EXPECTED[mode] in out


def test_learning_curves_are_drawn(start, tmp_path):
    (command,) = (c for c in COMMANDS if "analysis.plot_runs" in c)
    assert shlex.split(command)[3:] == ["~/logs/torchbeast"]
    shutil.copytree(ROOT / "models" / "Pong", tmp_path / "Pong")
    code, out, err = start("analysis.plot_runs", tmp_path).finish()
    assert code == 0, err
    assert "returns_by_steps.png" in out


def test_saliency_and_analysis_and_monobeast_run(start, savedir):
    for xpid, seed in (("One", 1), ("Two", 2)):
        torch.manual_seed(seed)
        agent = make_agent(AgentConfig())
        contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
        checkpoint.save(savedir / xpid / "model.tar", contents)
    short = {
        "saliency": ["--savedir", savedir, "--num_frames=2", "--first_frame=2", "--density=20"],
        "analysis.analyze_resnet": ["--load_path", savedir, "--save_dir", savedir / "filters"],
        "monobeast": ["--savedir", savedir, *SHORT_TRAINING],
    }
    for module, arguments in short.items():
        (command,) = (c for c in COMMANDS if c.startswith(f"python -m torchbeast.{module} "))
        code, out, err = start(module, *shlex.split(command)[3:], *arguments, cwd=savedir).finish()
        assert code == 0, err
        assert out
    assert (savedir / "saliency.gif").exists()


def test_make_knows_its_targets():
    # `make -n` would run the makefile of the C++ tests.
    rules = (ROOT / "Makefile").read_text()
    for line in rules.splitlines():
        if line.startswith("\t@echo"):
            target = line.split()[2]
            assert re.search(rf"^{target}:", rules, re.MULTILINE), target
