"""The agents in models/ still play: wrappers, network and checkpoint format at once."""

import json

import pytest
import torch

from tests.conftest import ROOT
from torchbeast.analysis.filters import LAYER_NAMES, read_weights
from torchbeast.play.agents import read_agent
from torchbeast.play.game_loop import GameLoop, open_games
from torchbeast.records import checkpoint, run_files

MODELS = ROOT / "models"
LEAD = 15  # Points.


@pytest.mark.parametrize("name", ["Pong", "PongAttention"])
def test_the_pong_agents_lead(name):
    trained = read_agent(MODELS / name)
    game = trained.agent.config.tasks[0]
    with open_games(trained, game, seed=1) as envs:
        loop = GameLoop(trained, game, envs, seed=1)
        ended = []
        while not ended and abs(loop.inputs.episode_return) < LEAD:
            ended = loop.step()
    assert loop.inputs.episode_return >= LEAD


@pytest.mark.parametrize("path", sorted(MODELS.glob("*/model.tar")), ids=lambda p: p.parent.name)
def test_every_shipped_agent_is_whole(path):
    trained = read_agent(path)
    meta = json.loads((path.parent / "meta.json").read_text())
    assert tuple(meta["tasks"]) == trained.agent.config.tasks
    assert (path.parent / "README.md").exists()
    assert (path.parent / "logs.csv").exists()
    assert "optimizer_state_dict" not in checkpoint.load(path)
    copies = run_files.intermediate_paths(path.parent)
    if trained.agent.config.agent_type == "resnet":
        assert len(copies) == 3
    for copy in copies.values():
        assert list(read_weights(checkpoint.load(copy)["model_state_dict"])) == LAYER_NAMES
    assert all(torch.isfinite(p).all() for p in trained.agent.parameters())
