import csv
import math

import numpy as np
import pytest
import torch
from PIL import Image

import tests.moving_target  # noqa: F401
from torchbeast.analysis import action_shares
from torchbeast.core.types import UsageError
from torchbeast.evaluate.trained import Trained
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint, run_files

GAME = "tests.moving_target:MovingTarget-v0"
PROBABILITIES = (0.7, 0.2, 0.1)


@pytest.fixture(autouse=True)
def custom_environments_are_allowed(monkeypatch):
    monkeypatch.setattr("torchbeast.evaluate.trained.allow", lambda games, flag: games)


def make(probabilities=PROBABILITIES, xpid="a", tasks=(GAME,), shape=(2, 36, 36)):
    """An agent that ignores what it sees."""
    config = AgentConfig(
        agent_type="atari", observation_shape=shape, num_actions=len(probabilities), tasks=tasks
    )
    agent = make_agent(config).eval()
    with torch.no_grad():
        agent.policy.weight.zero_()
        agent.policy.bias.copy_(torch.tensor(probabilities).log())
    return Trained(agent, xpid, "10")


def save(trained, directory):
    checkpoint.save(
        directory / trained.xpid / "model.tar",
        {
            "agent": trained.agent.config._asdict(),
            "model_state_dict": trained.agent.state_dict(),
            "steps": 10,
        },
    )
    return str(directory / trained.xpid)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_shares_and_entropy_are_those_of_the_policy():
    shares = action_shares.count_actions(make(), GAME, num_steps=400, num_envs=5)
    assert shares.shares.shape == (3, 5)
    np.testing.assert_allclose(shares.shares.sum(axis=0), 1)
    np.testing.assert_allclose(shares.shares.mean(axis=1), PROBABILITIES, atol=0.05)
    low, high = shares.intervals()
    assert (low < PROBABILITIES).all()
    assert (high > PROBABILITIES).all()
    assert (high - low < 0.1).all()
    entropy = -sum(p * math.log(p) for p in PROBABILITIES)
    assert shares.entropy == pytest.approx(entropy, abs=1e-5)


def test_the_same_seed_gives_the_same_shares():
    first, again, other = (
        action_shares.count_actions(make(), GAME, num_steps=50, num_envs=2, seed=seed).shares
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_each_game_has_the_names_of_its_own_actions():
    pong = "PongNoFrameskip-v4"
    trained = make([0.001, 0.001, 0.001, 0.995, 0.001, 0.001], tasks=(pong,), shape=(4, 84, 84))
    shares = action_shares.count_actions(trained, pong, num_steps=20, num_envs=2)
    assert shares.names == ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")
    assert shares.names[shares.shares.mean(axis=1).argmax()] == "LEFT"


def test_writes_a_row_per_action_and_a_picture(tmp_path, capsys):
    agents = [save(make(xpid="a"), tmp_path), save(make((0.1, 0.8, 0.1), "b"), tmp_path)]
    output = tmp_path / "new" / "shares"
    arguments = [*agents, "--num_steps", "30", "--num_envs", "3", "--save_dir", str(output)]
    assert action_shares.main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("a in MovingTarget: 0 ")
    assert printed[-2:] == [str(output / "action_shares.csv"), str(output / "action_shares.png")]
    rows = read(output / "action_shares.csv")
    assert [(row["agent"], row["action"]) for row in rows] == [(x, y) for x in "ab" for y in "012"]
    assert {row["model"] for row in rows} == {"10"}
    assert sum(float(row["share"]) for row in rows[:3]) == pytest.approx(1, abs=0.001)
    assert max(rows[3:], key=lambda row: float(row["share"]))["action"] == "1"
    assert all(float(row["low"]) <= float(row["share"]) <= float(row["high"]) for row in rows)
    with Image.open(output / "action_shares.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 5


def test_checkpoints_of_one_run_are_shown_side_by_side(tmp_path):
    run = save(make(), tmp_path)
    before = run_files.intermediate_path(tmp_path / "a", 5)
    contents = checkpoint.load(tmp_path / "a" / "model.tar")
    checkpoint.save(before, {**contents, "steps": 5})
    arguments = [run, str(before), "--num_steps=9", "--num_envs=1", f"--save_dir={tmp_path}"]
    assert action_shares.main(arguments) == 0
    rows = read(tmp_path / "action_shares.csv")
    assert [row["agent"] for row in rows] == ["a:10"] * 3 + ["a:5"] * 3
    assert {row["low"] for row in rows} == {"nan"}  # One environment says nothing about others.


def test_agents_are_paired_with_the_games_that_they_know():
    one = make(tasks=("PongNoFrameskip-v4",), xpid="one")
    two = make(tasks=("PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"), xpid="two")
    pairs = action_shares.choose_pairs([one, two], None)
    assert [(player.xpid, game[:4]) for player, game in pairs] == [
        ("one", "Pong"),
        ("two", "Pong"),
        ("two", "Brea"),
    ]
    pairs = action_shares.choose_pairs([one, two], "Breakout")
    assert [player.xpid for player, _ in pairs] == ["two"]
    with pytest.raises(UsageError, match="No agent knows Seaquest"):
        action_shares.choose_pairs([one, two], "Pong,Seaquest")


def test_an_agent_with_all_18_actions_is_drawn_beside_one_with_its_own():
    def shares(agent, names):
        return action_shares.ActionShares(
            agent, "1", "Pong", names, np.full((len(names), 2), 1 / len(names)), 0.0
        )

    figure = action_shares.draw(
        [shares("own", ("NOOP", "LEFT")), shares("all", ("NOOP", "FIRE", "LEFT"))],
        {"own": "own", "all": "all"},
    )
    (panel,) = figure.axes
    places = {
        container.get_label(): [
            round(bar.get_y() + bar.get_height() / 2, 3) for bar in container.patches
        ]
        for container in panel.containers
        if hasattr(container, "patches")
    }
    assert places == {"own": [-0.2, 1.8], "all": [0.2, 1.2, 2.2]}


def test_agents_of_one_name_share_a_colour(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(action_shares, "save_panels", lambda figure, path: figures.append(figure))
    one, other, many = (save(make(xpid=name), tmp_path) for name in ("one", "other", "many"))
    arguments = [f"one game={one},{other}", many, "--num_steps=2", "--num_envs=1"]
    action_shares.run(
        action_shares.make_parser().parse_args([*arguments, f"--save_dir={tmp_path}"])
    )
    (panel,) = figures[0].axes
    bars = [c for c in panel.containers if hasattr(c, "patches")]
    assert [bar.get_label() for bar in bars] == ["one game", "one game", "many"]
    colours = [bar.patches[0].get_facecolor() for bar in bars]
    assert colours[0] == colours[1] != colours[2]
    assert {row["agent"] for row in read(tmp_path / "action_shares.csv")} == {
        *("one", "other", "many")
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["{}", "--games", "Seaquest"], "No agent knows Seaquest"),
        (["{}", "--num_steps", "0"], "must be at least 1"),
        (["{}", "--save_dir", "{}/model.tar"], "--save_dir"),
    ],
)
def test_misuse_is_told_in_a_line(arguments, message, tmp_path, assert_misuse):
    path = save(make(), tmp_path)
    arguments = [argument.format(path) for argument in arguments]
    if "--num_steps" not in arguments:
        arguments += ["--num_steps", "2", "--num_envs", "1"]
    if "--save_dir" not in arguments:
        arguments += ["--save_dir", str(tmp_path / "shares")]
    assert_misuse(action_shares.main, arguments, message)
