"""A real agent is trained for a moment, put into models/, and has its card."""

import json

import pytest
import torch

from tools import model_card, train_models
from torchbeast.analysis.filters import LAYER_NAMES, read_weights
from torchbeast.core.types import UsageError
from torchbeast.models import from_checkpoint
from torchbeast.records import checkpoint, run_files
from torchbeast.records.csv_tables import Table


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    entry = {"name": "Small", "flags": "--env Pong --total_steps 400 --seed 0"}
    flags = [
        "--preset=small",
        "--agent_type=resnet",
        "--cores=1",
        "--save_model_every_nsteps=200",
        "--num_actors=4",
    ]
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
    ends = [Table(path / "logs.csv").rows[-1]["step"] for path in (run, target)]
    assert ends[0] == ends[1]
    assert "savedir" not in json.loads((target / "meta.json").read_text())["args"]


def test_a_shipped_copy_from_within_training_has_the_filters_alone(shipped):
    run, target = shipped
    ((step, small),) = run_files.intermediate_paths(target).items()
    whole = run_files.model_path(run, step)
    states = [checkpoint.load(path)["model_state_dict"] for path in (whole, small)]
    weights, kept = map(read_weights, states)
    assert list(kept) == LAYER_NAMES
    for name, value in kept.items():
        assert value == pytest.approx(weights[name], rel=1e-3, abs=1e-3)
    with pytest.raises(UsageError, match=f"filters alone, .*: play {target}"):
        from_checkpoint(small)


def test_a_card_has_the_command_and_the_scores(shipped, monkeypatch):
    _, target = shipped
    monkeypatch.setattr(model_card, "EPISODES", 1)
    games = {"PongNoFrameskip-v4": {"greedy": [-21.0, -21.0], "sampled": [-21.0, -20.5, -20.0]}}
    document = {"model": "400", "seed": model_card.SEED, "games": games}
    (target / "evaluation.json").write_text(json.dumps(document))
    text = model_card.write_card(target).read_text()
    flags = (
        "--preset small --env Pong --seed 0 --save_model_every_nsteps 200 --agent_type resnet "
        "--total_steps 400"
    )
    assert f"python -m torchbeast.polybeast {flags}" in text
    assert "| Pong | -20.5 [-21.0, -20.0] | -20.7 | 14.6 |" in text
    assert "| -21.0 | 1 |" in text


def test_unknown_agents_are_refused_by_name():
    pytest.importorskip("tomllib")  # Python 3.11 has it.
    with pytest.raises(UsageError, match="no agent Pnog; there are Pong"):
        train_models.read_plan(["Pnog"])
    shared, entries = train_models.read_plan(["Pong"])
    assert "--preset" in shared
    assert [entry["name"] for entry in entries] == ["Pong"]
