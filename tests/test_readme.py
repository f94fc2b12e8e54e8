"""The commands in the README do what it says, with a few steps instead of millions."""

import re
import shlex
import shutil
from importlib import import_module

import pytest
import torch

from tests import checkpoints
from tests.conftest import ROOT
from torchbeast import polybeast
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.config import PlayConfig
from torchbeast.train import TrainingConfig, make_plan

BREAKOUT, PONG = "BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"
# Appended, so that they win.
SHORT_TRAINING = ["--total_steps=100", "--agent_type=atari", "--unroll_length=10", "--num_actors=6",
                  "--fixed_input_scale", "--unit_statistics"]  # fmt: skip
SHORT = {"record": ["--movie_steps=20"]}
SHORT["test"] = SHORT["test_render"] = ["--num_episodes=1", "--sample"]


def blocks():
    """Yields the indented lines of the README that are commands."""
    for line in (ROOT / "README.md").read_text().splitlines():
        if re.match(r"    (make|python|pip|TORCHBEAST)", line):
            yield line.split("#")[0].strip()


COMMANDS = list(blocks())


def polybeast_commands():
    """Yields what commands pass to torchbeast.polybeast, and their mode."""
    for command in COMMANDS:
        words = shlex.split(command)
        if words[:2] == ["make", "train"]:
            arguments = [w.removeprefix("ARGS=") for w in words[2:]]
            words = ["--preset", "small", *shlex.split("".join(arguments))]
        elif words[:3] == ["python", "-m", "torchbeast.polybeast"]:
            words = words[3:]
        else:
            continue
        yield words, words[words.index("--mode") + 1] if "--mode" in words else "train"


@pytest.fixture(scope="module")
def savedir(tmp_path_factory):
    """The directory of runs, with untrained agents under the names of shipped ones."""
    path = tmp_path_factory.mktemp("runs")
    shallow = {"agent_type": "atari", "num_actions": 4}
    for name, config in {
        "One": {},
        "Two": {},
        "Pong": {**shallow, "tasks": (BREAKOUT,)},  # A game that is over soon.
        "MultiTaskPopArt": {**shallow, "tasks": (BREAKOUT, PONG), "num_actions": 18},
    }.items():
        torch.manual_seed(len(name))
        checkpoints.save_agent(path / name / "model.tar", make_agent(AgentConfig(**config)))
    return path


def test_the_readme_has_its_commands():
    assert {"make train", "make test", "pip install --editable ."} <= set(COMMANDS)
    assert [mode for _, mode in polybeast_commands()].count("train") >= 3


def test_all_trainings_can_be_planned(tmp_path):
    for arguments, mode in polybeast_commands():
        flags = vars(polybeast.make_parser().parse_args([*arguments, f"--savedir={tmp_path}"]))
        if mode == "train":
            make_plan(TrainingConfig.from_flags(flags))
        else:
            PlayConfig.from_flags(flags)


@pytest.mark.parametrize(
    ("mode", "needed", "more", "expected"),
    [
        ("test", "--num_episodes", [], "human"),
        ("test", "--json", ["--env", BREAKOUT], '"human_normalized"'),
        ("record", "--movie", [], "pong.mp4"),
        ("test_render", "", [], f"_{BREAKOUT}.gif"),  # No display here.
    ],
)
def test_trained_agents_are_scored_and_shown(
    savedir, monkeypatch, capsys, mode, needed, more, expected
):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.chdir(savedir)
    arguments = next(a for a, m in polybeast_commands() if m == mode and needed in " ".join(a))
    assert polybeast.main([*arguments, "--savedir", str(savedir), *SHORT[mode], *more]) == 0
    assert expected in capsys.readouterr().out


def test_learning_curves_are_drawn(start, tmp_path):
    (command,) = (c for c in COMMANDS if "analysis.plot_runs" in c)
    assert shlex.split(command)[3:] == ["~/logs/torchbeast"]
    shutil.copytree(ROOT / "models" / "Pong", tmp_path / "Pong")
    code, out, err = start("analysis.plot_runs", tmp_path).finish()
    assert code == 0, err
    assert "returns_by_steps.png" in out


def test_training_commands_run(start, savedir):
    trainings = [words for words, mode in polybeast_commands() if mode == "train"]
    with_popart = next(words for words in trainings if "--use_popart" in words)
    (single,) = (c for c in COMMANDS if c.startswith("python -m torchbeast.monobeast "))
    for module, words in (
        ("polybeast", with_popart),
        ("monobeast", shlex.split(single)[3:]),
    ):
        code, out, err = start(module, *words, "--savedir", savedir, *SHORT_TRAINING).finish()
        assert code == 0, err
        assert "steps; run in" in out


def test_saliency_and_analysis_run(savedir, monkeypatch, capsys):
    monkeypatch.chdir(savedir)
    models = ["--models=One=One,Two=Two", "--comp_no_optimal"]
    short = {
        "saliency": ["--savedir", savedir, "--num_frames=12", "--first_frame=40", "--density=40"],
        "analysis.analyze_resnet": ["--load_path", savedir, "--save_dir", savedir / "f", *models],
    }
    for module, arguments in short.items():
        commands = [c for c in COMMANDS if c.startswith(f"python -m torchbeast.{module} ")]
        assert commands
        for command in commands:
            words = [*shlex.split(command)[3:], *map(str, arguments)]
            if "--objects" in words:
                # The game of this Pong; movement shows in more frames.
                words += ["--env", BREAKOUT, "--num_games=1", "--num_frames=24"]
            assert import_module(f"torchbeast.{module}").main(words) == 0
            assert capsys.readouterr().out
    assert (savedir / "saliency.gif").exists()
    assert (savedir / "objects.png").exists()


def test_make_knows_its_targets():
    # `make -n` would run the makefile of the C++ tests.
    rules = (ROOT / "Makefile").read_text()
    for line in rules.splitlines():
        if line.startswith('\t@echo "make '):
            target = line.split()[2]
            assert re.search(rf"^{target}:", rules, re.MULTILINE), target
