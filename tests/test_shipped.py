"""The agents in models/ still play: wrappers, network and checkpoint format at once."""

import json
from pathlib import Path

import pytest
import torch

from torchbeast.play.agents import read_trained
from torchbeast.play.games import play
from torchbeast.records import checkpoint, run_files

MODELS = Path(__file__).parent.parent / "models"


def load(path):
    return read_trained(path, path.parent.name)


@pytest.mark.parametrize("name", ["Pong", "Pong-s2", "PongAttention", "PongShallow"])
def test_the_pong_agents_win(name):
    trained = load(MODELS / name / "model.tar")
    (game,) = play(trained, trained.agent.config.tasks[0], 1, seed=1)
    assert game.episode_return >= 15


@pytest.mark.parametrize("path", sorted(MODELS.glob("*/model.tar")), ids=lambda p: p.parent.name)
def test_every_shipped_agent_is_whole(path):
    trained = load(path)
    meta = json.loads((path.parent / "meta.json").read_text())
    assert tuple(meta["tasks"]) == trained.agent.config.tasks
    assert (path.parent / "README.md").exists()
    assert (path.parent / "logs.csv").exists()
    assert "optimizer_state_dict" not in checkpoint.load(path)
    steps = [int(p.name.split(".")[1]) for p in sorted(path.parent.glob("intermediate/*.tar"))]
    if len(steps) > 0:
        assert len(steps) >= 2
    for step in steps:
        assert load(run_files.intermediate_path(path.parent, step)).model_id == str(step)
    assert all(torch.isfinite(p).all() for p in trained.agent.parameters())
