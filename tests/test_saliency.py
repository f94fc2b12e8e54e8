import signal

import numpy as np
import pytest
import torch
from PIL import Image

from tests.interrupting import Interrupt, interrupt_at
from torchbeast import saliency
from torchbeast.analysis.saliency import Explainer, drawing, report
from torchbeast.analysis.saliency import drawing as files
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import Trained
from torchbeast.play.films import HEADER_HEIGHT
from torchbeast.play.games import action_names
from torchbeast.records import checkpoint, run_files

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
QUICK = ["--num_frames=2", "--first_frame=5", "--density=10", "--precision=float32"]


@pytest.fixture
def make_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(xpid, shown=None, path=None, scale=1.0, **config):
        torch.manual_seed(0)
        agent = make_agent(AgentConfig(**{"agent_type": "atari", **config}))
        with torch.no_grad():
            agent.policy.weight.mul_(scale)
            agent.baseline.weight.mul_(scale)
        contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
        checkpoint.save(path or tmp_path / xpid / "model.tar", {**contents, **(shown or {})})

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
    directory = tmp_path / "mine" / "saliency" / PONG
    assert sorted(p.name for p in directory.iterdir()) == [
        "000005.png",
        "000006.png",
        "scores.npz",
    ]
    with Image.open(directory / "000005.png") as image:
        width = 4 * 2 * 160 + drawing.SIDE_WIDTH + 4 * 4
        assert image.size == (width, 2 * 210 + HEADER_HEIGHT + 2 * drawing.BAR_HEIGHT)
    scores = np.load(directory / "scores.npz")
    assert scores["step"].tolist() == [5, 6]
    assert np.isfinite(scores["policy"]).all()
    assert scores["policy"].max() > 0
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames <= 2


def test_nothing_of_an_earlier_game_stays_among_the_new_pictures(make_run, tmp_path):
    make_run("mine")
    assert run(tmp_path, "--xpid=mine", "--check") == 0
    directory = tmp_path / "mine" / "saliency" / PONG
    assert (directory / "check.json").exists()
    assert run(tmp_path, "--xpid=mine", "--first_frame=7") == 0
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["000007.png", "000008.png", "scores.npz"]


@pytest.mark.parametrize("others", [[], ["--compare=other"]])
def test_ctrl_c_saves_the_frames_until_then(make_run, tmp_path, monkeypatch, capsys, others):
    def interrupt(explainer, **options):
        for step in watch(explainer, **options):
            if step.step == 6:
                send_interrupt()
            yield step

    send_interrupt = Interrupt()
    watch = Explainer.watch
    monkeypatch.setattr(Explainer, "watch", interrupt)
    for name in ("mine", "other"):
        make_run(name)
    arguments = ["--xpid=mine", *others, "--num_frames=9", "--check", "--movie=film.gif"]
    assert run(tmp_path, *arguments) == 128 + signal.SIGINT
    assert "Saving 2 frames" in capsys.readouterr().err
    directories = list(tmp_path.glob(f"*/saliency/{PONG}"))
    assert len(directories) == 1 + len(others)
    for directory in directories:
        names = sorted(path.name for path in directory.iterdir())
        assert names == ["000005.png", "000006.png", "scores.npz"]
        assert np.load(directory / "scores.npz")["step"].tolist() == [5, 6]
    assert (tmp_path / "film.gif").exists()


def test_ctrl_c_ends_the_checks_and_saves_the_rest(make_run, tmp_path, monkeypatch, capsys):
    interrupt_at(monkeypatch, report, "check_randomisation")
    monkeypatch.setattr(report, "find_background", lambda *_: pytest.fail("The checks go on"))
    make_run("mine")
    assert run(tmp_path, "--xpid=mine", "--check", "--sheet=sheet.png") == 128 + signal.SIGINT
    assert "Leaving the checks out" in capsys.readouterr().err
    names = sorted(path.name for path in (tmp_path / "mine" / "saliency" / PONG).iterdir())
    assert names == ["000005.png", "000006.png", "scores.npz"]
    assert (tmp_path / "sheet.png").exists()


def test_agents_are_compared_on_the_same_game_whatever_their_actions_are_called(
    make_run, tmp_path, monkeypatch
):
    films = []
    write_movie = files.write_movie

    def keep(path, shown, peaks):
        films.extend(shown)
        write_movie(path, shown, peaks)

    monkeypatch.setattr(files, "write_movie", keep)
    make_run("one")
    make_run("both", tasks=(BREAKOUT, PONG), num_actions=18, use_popart=True)
    code = run(tmp_path, "--xpid=one", "--env", PONG, "--compare=both", "--movie=two.mp4",
               "--sheet=two.png", "--num_frames=12")  # fmt: skip
    assert code == 0
    paths = tmp_path.glob(f"*/saliency/{PONG}/scores.npz")
    scores = {path.relative_to(tmp_path).parts[0]: np.load(path) for path in paths}
    trained = [Trained(make_agent(AgentConfig(num_actions=n)), "", "") for n in (6, 18)]
    names, others = (np.array(action_names(agent, PONG)) for agent in trained)
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


def test_agents_are_compared_on_the_same_game_behind_the_end_of_a_file_of_actions(
    make_run, tmp_path
):
    make_run("one")
    make_run("both", tasks=(BREAKOUT, PONG), num_actions=18, use_popart=True, scale=-1.0)
    (tmp_path / "actions.txt").write_text("2 3 " * 4)
    code = run(tmp_path, "--xpid=one", "--env", PONG, "--compare=both", "--num_frames=12",
               "--actions=actions.txt", "--first_frame=0")  # fmt: skip
    assert code == 0
    paths = [tmp_path / name / "saliency" / PONG / "scores.npz" for name in ("one", "both")]
    played = [scores["action_names"][scores["action"]] for scores in map(np.load, paths)]
    assert np.array_equal(*played)
    assert played[0][:4].tolist() == ["RIGHT", "LEFT", "RIGHT", "LEFT"]


def test_all_pictures_of_a_film_have_one_scale(make_run, tmp_path, monkeypatch):
    peaks = []
    draw_step = drawing.draw_step

    def keep(film, index, scales):
        peaks.append(dict(scales))
        return draw_step(film, index, scales)

    monkeypatch.setattr(files, "draw_step", keep)
    make_run("mine")
    make_run("large", scale=3.0)
    assert run(tmp_path, "--xpid=mine", "--compare=large") == 0
    assert run(tmp_path, "--xpid=mine", "--peak=0.5") == 0
    scores = [np.load(p) for p in tmp_path.glob(f"*/saliency/{PONG}/scores.npz")]
    for scale in (("policy", "logits²/2"), ("value", "returns²/2")):
        typical = np.median([maps[scale[0]].max(axis=(1, 2)) for maps in scores])
        assert [peak[scale] for peak in peaks] == [pytest.approx(typical)] * 4 + [0.5] * 2
    assert scores[0]["policy"].max() != pytest.approx(scores[1]["policy"].max(), rel=0.1)


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


def test_checkpoints_of_one_agent_are_compared_under_different_names(make_run, tmp_path):
    make_run("mine", shown={"steps": 500})
    path = run_files.intermediate_path(tmp_path / "mine", 400)
    make_run("mine", path=path, shown={"steps": 400})
    output = tmp_path / "shown"
    assert run(tmp_path, "--xpid=mine", f"--compare={path}", f"--saliencydir={output}") == 0
    assert sorted(path.name for path in output.iterdir()) == ["mine-400", "mine-500"]
    assert run(tmp_path, "--xpid=mine", f"--compare={path}") == 0
    found = [np.load(p) for p in sorted((tmp_path / "mine").glob("saliency/**/scores.npz"))]
    assert sorted(str(scores["model"]) for scores in found) == ["400", "500"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--first_frame=100000"], "the game ends after"),
        (["--density=0"], "must be at least 1"),
        (["--env=PogNoFrameskip-v4"], "did you mean PongNoFrameskip-v4"),
        (["--xpid=none"], "No checkpoint at"),
        (["--movie=film.avi"], r"Movies are .gif or .mp4"),
        (["--sheet=sheet.jpg"], "a contact sheet is a .png"),
        (["--env=Freeway"], "FreewayNoFrameskip-v4 has 3: it was not trained on a game with these"),
        (["--score", "value", "action:JUMP"], "the actions are NOOP, FIRE"),
        (["--score=task:Pong"], "one value head for all"),
        (["--compare=other"], "do not see the same game: their preprocessing is machado and deep"),
        (["--compare=mine,"], "the name of an agent is empty"),
        (["--compare=mine"], "would have one directory"),
        (["--peak=0"], "must be above 0"),
    ],
)
def test_edges_are_one_clear_line(make_run, tmp_path, assert_misuse, arguments, message):
    make_run("mine")
    make_run("other", {"preprocessing": "machado"})
    assert_misuse(
        saliency.main, ["--savedir", tmp_path, *QUICK, "--xpid=mine", *arguments], message
    )
