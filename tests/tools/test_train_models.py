"""A real agent is trained for a moment, put into models/, and has its card."""

import json
from pathlib import Path

import pytest
import torch

from tools import model_card, train_models
from torchbeast.core.types import UsageError
from torchbeast.models import from_checkpoint
from torchbeast.records import checkpoint

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    entry = {"name": "Small", "flags": "--env Pong --total_steps 400 --seed 1"}
    flags = ["--preset=small", "--cores=1", "--save_model_every_nsteps=200", "--num_actors=4"]
    run = train_models.train(entry, flags, runs)
    target = tmp_path_factory.mktemp("models") / "Small"
    train_models.ship(run, target)
    return run, target


def test_a_shipped_agent_is_the_runs_in_half_precision(shipped):
    run, target = shipped
    whole, small = (from_checkpoint(path).state_dict() for path in (run, target))
    for name, value in whole.items():
        torch.testing.assert_close(small[name], value, rtol=1e-3, atol=1e-3)
    contents = checkpoint.load(target / "model.tar")
    assert "optimizer_state_dict" not in contents
    assert contents["emulator_gray"] is False
    assert "savedir" not in json.loads((target / "meta.json").read_text())["args"]
    copies = sorted(path.name for path in (target / "intermediate").iterdir())
    assert copies == sorted(path.name for path in (run / "intermediate").iterdir())


def test_a_card_has_the_command_and_the_scores(shipped, monkeypatch):
    _, target = shipped
    monkeypatch.setattr(model_card, "EPISODES", 1)
    games = {"PongNoFrameskip-v4": {"greedy": [-21.0, -21.0], "sampled": [-21.0, -20.0]}}
    document = {"model": "400", "seed": model_card.SEED, "games": games}
    (target / "evaluation.json").write_text(json.dumps(document))
    text = model_card.write_card(target).read_text()
    command = "python -m torchbeast.polybeast --preset small --env Pong --seed 1 --total_steps 400"
    assert command in text
    assert "| Pong | -20.5 [-21.0, -20.0] | -20.7 | 14.6 |" in text
    assert "| -21.0 | 1 |" in text


def test_unknown_agents_are_refused_by_name():
    with pytest.raises(UsageError, match="no agent Pnog; there are Pong"):
        train_models.read_plan(["Pnog"])
    shared, entries = train_models.read_plan(["Pong"])
    assert "--preset" in shared
    assert [entry["name"] for entry in entries] == ["Pong"]
