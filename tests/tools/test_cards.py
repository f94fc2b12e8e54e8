"""Shipping a run, and its card."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tools import model_card
from tools import ship as shipping
from tools.shipped import card, scoring
from torchbeast.analysis.aggregates import Interval
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint, run_files

MODELS = Path(__file__).parents[2] / "models"
GAME = "PongNoFrameskip-v4"
TARGET = "tests.moving_target:MovingTarget-v0"


def copy_run(path):
    """Copies a shipped agent to where it looks like a run with ten intermediate checkpoints."""
    shutil.copytree(MODELS / "PongShallow", path)
    contents = checkpoint.load(path / "model.tar")
    del contents["seed"]  # The copies of a run do not have all that its own checkpoint has.
    for steps in range(200_000, 2_000_001, 200_000):
        checkpoint.save(run_files.intermediate_path(path, steps), {**contents, "steps": steps})


@pytest.fixture
def shipped(tmp_path):
    """A shipped agent, made from one in models/ as from a run."""
    run = tmp_path / "Pong-s2"
    copy_run(run)
    (run / "scores.csv").write_text("step,game\n100,Pong\n")
    (run / "slices.csv").write_text(
        "date,first_step,last_step,seconds,cores,machine,exit_code\n"
        "2026-01-01T00:00:00Z,0,1000000,900,2,Xeon,143\n"
        "2026-01-01T01:00:00Z,1000000,2000000,900,2,Xeon,0\n"
    )
    target = tmp_path / "models" / "Pong"
    (target / "intermediate").mkdir(parents=True)
    (target / "intermediate" / "model.000000007.tar").write_text("of an earlier agent")
    (target / "notes.txt").write_text("a file of the user's")
    shipping.ship(run, target)
    return target


def write_games(agent, greedy=(20.0, 21.0), sampled=(18.0, 20.0)):
    games = {GAME: {"greedy": greedy, "sampled": sampled}}
    document = {"model": "2000000", "seed": 100, "games": games}
    (agent / scoring.FILE).write_text(json.dumps(document))


def test_a_shipped_agent_has_five_copies_spread_over_training(shipped):
    steps = [int(p.name.split(".")[1]) for p in sorted(shipped.glob("intermediate/*"))]
    assert steps == [400_000, 800_000, 1_200_000, 1_600_000, 2_000_000]
    assert "optimizer_state_dict" not in checkpoint.load(shipped / "model.tar")
    assert json.loads((shipped / "meta.json").read_text())["xpid"] == "Pong"
    for name in ("scores.csv", "slices.csv", "notes.txt"):
        assert (shipped / name).exists()


def test_a_last_copy_that_is_the_final_one_takes_no_space(tmp_path):
    run, target = tmp_path / "run", tmp_path / "models" / "Pong"
    copy_run(run)
    shipping.ship(run, target)
    *others, last = sorted((target / "intermediate").iterdir())
    assert last.readlink() == Path("../model.tar")
    assert checkpoint.load(last)["steps"] == checkpoint.load(target / "model.tar")["steps"]
    assert checkpoint.load(last)["steps"] == checkpoint.load(run / "model.tar")["steps"]
    assert not any(path.is_symlink() for path in others)
    # Shipped again, as when it has learned more.
    shipping.ship(run, target)
    assert (target / "model.tar").stat().st_size == last.stat().st_size > 1_000_000
    assert last.readlink() == Path("../model.tar")
    assert not (target / "model.tar").is_symlink()


def test_a_long_table_is_thinned_and_keeps_its_last_row(tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "MAX_ROWS", 3)
    source = tmp_path / "logs.csv"
    source.write_text("step\n" + "\n".join(map(str, range(1, 11))) + "\n")
    shipping.copy_table(source, tmp_path / "thin.csv")
    assert (tmp_path / "thin.csv").read_text().split() == ["step", "3", "6", "10"]


def test_a_run_without_a_checkpoint_is_not_shipped(tmp_path):
    with pytest.raises(UsageError, match=r"has no model\.tar"):
        shipping.ship(tmp_path, tmp_path / "B")


def test_a_card_says_how_the_agent_was_trained_and_how_it_plays(shipped):
    write_games(shipped, greedy=(20.0, 20.0, 21.0), sampled=(18.0, 19.0, 20.0))
    text = model_card.write(shipped, episodes=3).read_text()
    for part in (
        "# Pong\n",
        "shallow CNN",
        "--preset small --seed 2 --learning_rate 0.001 --num_actors 16 --xpid Pong",
        "2,000,000 agent steps, 8.0 million frames",
        "0.5 hours in 2 slices on 2 cores of Xeon",
        "| 19.0 [18.0, 20.0] | -20.7 | 14.6 | 112 [110, 115] | 20.3 | 2 |",
        "400,000, 800,000, 1,200,000",
        "(curve.png)",
        "(frame.png)",
    ):
        assert part in text
    assert "/tmp" not in text
    assert "less the mean of all pixels" in text
    # Equal inputs give equal files.
    names = ("README.md", "curve.png", "frame.png")
    first = [(shipped / name).read_bytes() for name in names]
    model_card.write(shipped, episodes=3)
    assert [(shipped / name).read_bytes() for name in names] == first


def test_a_card_has_the_notes_beside_it(shipped):
    write_games(shipped)
    (shipped / "notes.md").write_text("Its machine was paused for an hour.\n")
    text = model_card.write(shipped, episodes=2).read_text()
    assert "`evaluation.json` |\n\nIts machine was paused for an hour.\n\n## Scores" in text


def test_a_card_says_what_is_subtracted_from_the_frames(shipped):
    facts = card.read_facts(shipped)
    assert not facts.has_mean_picture
    assert card.read_facts(MODELS / "SpaceInvaders").has_mean_picture
    assert "mean picture" in card.format_frames(facts._replace(has_mean_picture=True))
    fixed = {**facts.meta, "args": {**facts.args, "fixed_input_scale": True}}
    assert "x / 255" in card.format_frames(facts._replace(meta=fixed))


def test_a_flag_of_value_zero_is_in_the_command(shipped):
    facts = card.read_facts(shipped)
    args = {**facts.args, "seed": 0, "entropy_cost": 0.0, "cores": 1}
    command = card.command(facts._replace(meta={**facts.meta, "args": args}))
    assert "--cores" not in command  # Others may use all they have.
    assert "--seed 0 " in command
    assert "--entropy_cost 0.0 " in command


def test_a_command_has_no_addresses_of_the_machines_that_trained(shipped):
    facts = card.read_facts(shipped)
    args = {**facts.args, "logger": "wandb", "join_address": "h:1", "tls_dir": "tls"}
    command = card.command(facts._replace(meta={**facts.meta, "args": args}))
    assert command == card.command(facts)


def test_a_card_names_flags_that_are_newer_than_the_agent(shipped):
    facts = card.read_facts(shipped)
    assert card.format_new_flags(facts) == []  # It does not use PopArt.
    args = {k: v for k, v in facts.args.items() if k not in card.POPART_FLAGS}
    old = {**args, "use_popart": True, "beta": 0.0003}
    (text,) = card.format_new_flags(facts._replace(meta={**facts.meta, "args": old}))
    assert "no `--beta_per` and `--sigma_floor` yet" in text
    new = {**old, "beta_per": "target", "sigma_floor": 0.1}
    assert card.format_new_flags(facts._replace(meta={**facts.meta, "args": new})) == []


def refuse_to_play(*_, **__):
    raise PlayedError


class PlayedError(Exception):
    """Games are played."""


def test_games_are_played_once(tmp_path, monkeypatch):
    config = AgentConfig(
        agent_type="atari", observation_shape=(2, 36, 36), num_actions=3, tasks=(TARGET,)
    )
    agent = make_agent(config)
    contents = {"agent": config._asdict(), "model_state_dict": agent.state_dict(), "steps": 64}
    checkpoint.save(tmp_path / "model.tar", contents)
    played = scoring.evaluate(tmp_path, episodes=4, seed=3)
    assert played.model == "64"
    assert {len(x) for x in played.returns[TARGET].values()} == {4}
    monkeypatch.setattr(scoring, "ProcessPoolExecutor", refuse_to_play)
    again = scoring.evaluate(tmp_path, episodes=4, seed=3)
    assert again.score(TARGET, "greedy") == played.score(TARGET, "greedy")
    with pytest.raises(PlayedError):  # Other games.
        scoring.evaluate(tmp_path, episodes=4, seed=4)
    checkpoint.save(tmp_path / "model.tar", {**contents, "steps": 128})
    with pytest.raises(PlayedError):  # Another checkpoint.
        scoring.evaluate(tmp_path, episodes=4, seed=3)
    (tmp_path / scoring.FILE).write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        scoring.evaluate(tmp_path, episodes=4, seed=3)


def test_scores_of_several_games_have_a_median_over_games():
    returns = {
        GAME: np.array([14.6, 14.6]),  # As a human.
        "SpaceInvadersNoFrameskip-v4": np.array([148.0, 148.0]),  # As a random agent.
        "AirRaidNoFrameskip-v4": np.array([500.0, 700.0]),  # No human score is published.
    }
    games = {game: {"greedy": x, "sampled": x} for game, x in returns.items()}
    evaluation = scoring.Evaluation("1", 0, games)
    assert evaluation.normalized(GAME, "greedy").mean == pytest.approx(1)
    assert evaluation.normalized("AirRaidNoFrameskip-v4", "greedy") is None
    assert evaluation.normalized_median("greedy").mean == pytest.approx(0.5)
    assert evaluation.score("AirRaidNoFrameskip-v4", "sampled").interval == Interval(500, 700)
    table = card.format_scores(evaluation)
    assert "| median |  |  |  | 50 [50, 50] |  |  |" in table
    assert any("AirRaid" in note for note in card.format_notes(evaluation))
