import json
import os
import re
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from tests import checkpoints
from torchbeast import saliency
from torchbeast.analysis.saliency import Explainer, drawing
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import Trained
from torchbeast.play.game_loop import agent_action_names
from torchbeast.play.pictures import HEADER_HEIGHT

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
QUICK = ["--num_frames=2", "--first_frame=5", "--density=10", "--precision=float32"]


@pytest.fixture
def make_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(xpid, shown=None, **config):
        torch.manual_seed(0)
        agent = make_agent(AgentConfig(**{"agent_type": "atari", **config}))
        checkpoints.save_agent(tmp_path / xpid / "model.tar", agent, **(shown or {}))

    return make


def run(tmp_path, *arguments):
    return saliency.main(["--savedir", str(tmp_path), *QUICK, *arguments])


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"use_lstm": True}, {}),
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
    directory = tmp_path / "mine" / "saliency" / PONG
    assert sorted(p.name for p in directory.iterdir()) == ["000005.png", "000006.png", "scores.npz"]
    with Image.open(directory / "000005.png") as image:
        width = 4 * 2 * 160 + drawing.SIDE_WIDTH + 4 * 4
        assert image.size == (width, 2 * 210 + HEADER_HEIGHT + 2 * drawing.BAR_HEIGHT)
    scores = np.load(directory / "scores.npz")
    assert scores["step"].tolist() == [5, 6]
    assert np.isfinite(scores["policy"]).all()
    assert scores["policy"].max() > 0
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames <= 2


def test_ctrl_c_saves_the_frames_until_then(make_run, tmp_path, monkeypatch, capsys):
    def interrupt(explainer, **options):
        for step in watch(explainer, **options):
            if step.step == 6 and not sent:
                sent.append(os.kill(os.getpid(), signal.SIGINT))
            yield step

    sent = []
    watch = Explainer.watch
    monkeypatch.setattr(Explainer, "watch", interrupt)
    for name in ("mine", "other"):
        make_run(name)
    arguments = ["--xpid=mine", "--compare=other", "--num_frames=9", "--movie=film.gif"]
    assert run(tmp_path, *arguments, "--check") == 128 + signal.SIGINT
    assert "Saving 2 frames" in capsys.readouterr().err
    directories = list(tmp_path.glob(f"*/saliency/{PONG}"))
    assert len(directories) == 2
    for directory in directories:
        names = sorted(path.name for path in directory.iterdir())
        assert names == ["000005.png", "000006.png", "scores.npz"]
        assert np.load(directory / "scores.npz")["step"].tolist() == [5, 6]
    assert (tmp_path / "film.gif").exists()


def test_agents_are_compared_on_the_same_game_whatever_their_actions_are_called(
    make_run, tmp_path, monkeypatch
):
    films = []
    write_movie = drawing.write_movie

    def keep(path, shown, peaks):
        films.extend(shown)
        write_movie(path, shown, peaks)

    monkeypatch.setattr(drawing, "write_movie", keep)
    make_run("one")
    make_run("both", tasks=(BREAKOUT, PONG), num_actions=18, use_popart=True)
    code = run(tmp_path, "--xpid=one", "--env", PONG, "--compare=both", "--movie=two.mp4",
               "--sheet=two.png", "--num_frames=12")  # fmt: skip
    assert code == 0
    paths = tmp_path.glob(f"*/saliency/{PONG}/scores.npz")
    scores = {path.relative_to(tmp_path).parts[0]: np.load(path) for path in paths}
    trained = [Trained(make_agent(AgentConfig(num_actions=n)), "", "") for n in (6, 18)]
    names, others = (np.array(agent_action_names(agent, PONG)) for agent in trained)
    played = names[scores["one"]["action"]]
    assert len(set(played)) > 1 or played[0] != "NOOP"
    assert np.array_equal(played, others[scores["both"]["action"]])
    for first, second in zip(*(film.steps for film in films), strict=True):
        assert np.array_equal(first.picture, second.picture)
    assert (tmp_path / "two.mp4").stat().st_size > 1000
    with Image.open(tmp_path / "two.png") as sheet:
        # Values with PopArt have another unit, and so a scale of their own.
        height = 2 * (2 * 210 + HEADER_HEIGHT) + 3 * drawing.BAR_HEIGHT
        assert sheet.size == (2 * (6 * 160 + 5 * 4), height)


def test_a_custom_agent_is_compared_with_another(make_run, tmp_path):
    own = "tests.checkpoints:Own"
    make_run("own", agent_type=own)
    make_run("other")
    assert run(tmp_path, "--xpid=own", f"--agent_type={own}", "--compare=other") == 0
    assert (tmp_path / "other" / "saliency" / PONG / "scores.npz").exists()


def test_the_numbers_say_what_they_are_of(make_run, tmp_path):
    make_run("mine", tasks=(BREAKOUT, PONG), num_actions=18, use_popart=True)
    assert run(tmp_path, "--xpid=mine", f"--env={PONG}", "--seed=7", "--score", "policy",
               "action:fire", "task:Breakout", "action") == 0  # fmt: skip
    scores = np.load(tmp_path / "mine" / "saliency" / PONG / "scores.npz", allow_pickle=False)
    assert (scores["xpid"], scores["env"], scores["density"], scores["radius"], scores["seed"]) == (
        ("mine", PONG, 10, 5, 7)
    )
    assert scores["action_names"].tolist()[:2] == ["NOOP", "FIRE"]
    assert scores["logits"].shape == (2, 18)
    assert scores["values"].shape == scores["normalized_values"].shape == (2, 2)
    assert scores["tasks"].tolist() == [BREAKOUT, PONG]
    assert scores["head"] == 1
    assert scores["sigma"].shape == (2,)
    for name in ("policy", "action_FIRE", "task_Breakout", "action_chosen"):
        assert scores[name].shape == (2, 9, 9)


def test_checks_of_maps_are_printed_saved_and_drawn(make_run, tmp_path, capsys):
    make_run("mine")
    options = ["--check", "--score=action", "--num_frames=1", "--html=page.html"]
    assert run(tmp_path, "--xpid=mine", *options) == 0
    directory = tmp_path / "mine" / "saliency" / PONG
    (check,) = json.loads((directory / "check.json").read_text())
    assert check["score"] == "action:chosen"
    row = rf"action:chosen +{check['faithful']:.2f} +{check['over edges']:.2f} "
    assert re.search(row, capsys.readouterr().out)
    with Image.open(directory / "check.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 5
    data = re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text())[1]
    (agent,) = json.loads(data)["agents"]
    assert agent["checks"][0]["numbers"][0] == pytest.approx(check["faithful"], abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--first_frame=100000"], "the game ends after"),
        (["--env=PogNoFrameskip-v4"], "did you mean Pong"),
        (["--xpid=none"], "No checkpoint at"),
        (["--env=Freeway"], "FreewayNoFrameskip-v4 has 3: choose a game that it knows: "),
        (["--score", "value", "action:JUMP"], "the actions are NOOP, FIRE"),
        (["--compare=other"], "do not see the same game: their preprocessing is machado and deep"),
        (["--compare=mine"], "would have one directory"),
        (["--objects=a.png", "--env=tests.odd_games:Endless-v0"], "--objects is for Atari games"),
    ],
)
def test_wrong_input_is_one_line(make_run, tmp_path, assert_misuse, arguments, message):
    make_run("mine")
    make_run("other", {"preprocessing": "machado"})
    assert_misuse(
        saliency.main, ["--savedir", tmp_path, *QUICK, "--xpid=mine", *arguments], message
    )


def test_objects_are_taken_away_from_several_agents_in_the_same_frames(
    make_run, tmp_path, capsys, caplog
):
    make_run("one", tasks=(PONG,), num_actions=6)
    make_run("six", tasks=(PONG, BREAKOUT), num_actions=18, use_popart=True)
    assert run(tmp_path, "--xpid=one", "--compare=six", f"--env={PONG}", "--num_games=2",
               "--first_frame=40", "--num_frames=24", "--objects=objects.png") == 0  # fmt: skip
    out = capsys.readouterr().out
    assert "one, policy" in out
    assert "six, value" in out
    assert "#ececec" in out  # The ball.
    with Image.open(tmp_path / "objects.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 5
    shorter = ["--first_frame=100000", "--objects=none.png"]
    assert run(tmp_path, "--xpid=six", f"--env={BREAKOUT}", "--num_games=1", *shorter) == 2
    assert "no game lasts so long" in caplog.text + capsys.readouterr().err
    missing = "--compare=nobody"
    assert run(tmp_path, "--xpid=one", f"--objects={tmp_path}/a.png", "--html=b.html", missing) == 2
    assert "--html has no effect with --objects" in caplog.text
    assert run(tmp_path, "--xpid=one", "--num_games=2", missing) == 2
    assert "--num_games has no effect without --objects" in caplog.text
