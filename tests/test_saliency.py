import numpy as np
import pytest
import torch
from PIL import Image

from torchbeast import saliency
from torchbeast.analysis import saliency_files
from torchbeast.evaluate.actions import action_names
from torchbeast.evaluate.playing import Trained
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
QUICK = ["--num_frames=2", "--first_frame=5", "--density=10", "--precision=float32"]


@pytest.fixture
def make_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(xpid, shown=None, **config):
        torch.manual_seed(0)
        agent = make_agent(AgentConfig(**{"agent_type": "atari", **config}))
        contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
        checkpoint.save(tmp_path / xpid / "model.tar", {**contents, **(shown or {})})

    return make


def run(tmp_path, *arguments):
    return saliency.main(["--savedir", str(tmp_path), *QUICK, *arguments])


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"use_lstm": True}, {}),
        ({"agent_type": "resnet"}, {}),
        (
            {"agent_type": "aaa", "observation_shape": (3, 105, 80)},
            {"frame_format": "rgb_last", "frame_height": 105, "frame_width": 80},
        ),
        ({"observation_shape": (12, 84, 84)}, {"frame_format": "rgb_stack"}),
    ],
)
def test_shows_every_agent_and_every_frame_format(make_run, tmp_path, config, shown):
    make_run("mine", shown, **config)
    assert run(tmp_path, "--xpid=mine", "--movie=film.gif") == 0
    directory = tmp_path / "saliency" / "mine" / PONG
    assert sorted(p.name for p in directory.iterdir()) == [
        "000005.png",
        "000006.png",
        "scores.npz",
    ]
    with Image.open(directory / "000005.png") as image:
        assert image.size == (2 * (4 * 160 + 3 * 4), 2 * 210)
    scores = np.load(directory / "scores.npz")
    assert scores["step"].tolist() == [5, 6]
    assert np.isfinite(scores["policy"]).all()
    assert scores["policy"].max() > 0
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames <= 2


def test_the_same_seed_gives_the_same_scores(make_run, tmp_path):
    make_run("mine")
    results = []
    for name in ("a", "b"):
        assert run(tmp_path, "--xpid=mine", f"--saliencydir={name}", "--seed=3") == 0
        results.append(np.load(tmp_path / name / "mine" / PONG / "scores.npz"))
    for field in ("policy", "value", "action"):
        assert np.array_equal(results[0][field], results[1][field])


def test_agents_are_compared_on_the_same_game_whatever_their_actions_are_called(
    make_run, tmp_path, monkeypatch
):
    pictures = {}
    panels = saliency_files.panels

    def keep(picture, scores):
        pictures.setdefault(len(scores.policy), []).append(picture)
        return panels(picture, scores)

    monkeypatch.setattr(saliency_files, "panels", keep)
    make_run("one")
    make_run("both", tasks=(BREAKOUT, PONG), num_actions=18, use_popart=True)
    code = run(tmp_path, "--xpid=one", "--env", PONG, "--compare=both", "--movie=two.mp4",
               "--sheet=two.png", "--num_frames=12")  # fmt: skip
    assert code == 0
    scores = {p.parent.parent.name: np.load(p) for p in tmp_path.glob(f"*/*/{PONG}/scores.npz")}
    trained = [Trained(make_agent(AgentConfig(num_actions=n)), "", "") for n in (6, 18)]
    names, others = (np.array(action_names(agent, PONG)) for agent in trained)
    played = names[scores["one"]["action"]]
    assert len(set(played)) > 1 or played[0] != "NOOP"
    assert np.array_equal(played, others[scores["both"]["action"]])
    first, second = np.split(np.stack(*pictures.values()), 2)
    assert np.array_equal(first, second)
    assert (tmp_path / "two.mp4").stat().st_size > 1000
    with Image.open(tmp_path / "two.png") as sheet:
        assert sheet.size == (2 * (6 * 160 + 5 * 4), 2 * 2 * (210 + 24))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--first_frame=100000"], "the game ends after"),
        (["--density=0"], "must be at least 1"),
        (["--env=PogNoFrameskip-v4"], "did you mean PongNoFrameskip-v4"),
        (["--xpid=none"], "No checkpoint at"),
        (["--movie=film.avi"], r"Movies are .gif or .mp4"),
        (["--sheet=sheet.jpg"], "a contact sheet is a .png"),
        (["--env=FreewayNoFrameskip-v4"], "it was not trained on a game with these"),
    ],
)
def test_edges_are_one_clear_line(make_run, tmp_path, assert_misuse, arguments, message):
    make_run("mine")
    assert_misuse(
        saliency.main, ["--savedir", tmp_path, *QUICK, "--xpid=mine", *arguments], message
    )


def test_a_game_that_the_agent_was_not_trained_on(make_run, tmp_path):
    make_run("mine")
    assert run(tmp_path, "--xpid=mine", "--env=SpaceInvadersNoFrameskip-v4") == 0


def test_density_and_radius_at_their_limits(make_run, tmp_path):
    make_run("mine")
    assert run(tmp_path, "--xpid=mine", "--density=1000", "--radius=500") == 0
    scores = np.load(tmp_path / "saliency" / "mine" / PONG / "scores.npz")
    assert scores["policy"].shape == (2, 1, 1)
