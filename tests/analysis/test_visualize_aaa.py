import numpy as np
import torch
from PIL import Image

from torchbeast.analysis import visualize_aaa
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint


def save(path, agent_type):
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type=agent_type))
    checkpoint.save(
        path / "model.tar",
        {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()},
    )


def test_shows_each_query_over_the_game(tmp_path, capsys):
    save(tmp_path / "mine", "aaa")
    arguments = [
        "--savedir", str(tmp_path), "--xpid=mine", "--num_frames=3", "--first_frame=2",
        "--save_dir", str(tmp_path / "out"), "--movie", str(tmp_path / "film.mp4"),
    ]  # fmt: skip
    assert visualize_aaa.main(arguments) == 0
    assert "3 frames in" in capsys.readouterr().out
    paths = sorted((tmp_path / "out" / "mine" / "PongNoFrameskip-v4").iterdir())
    assert [p.name for p in paths] == ["000002.png", "000003.png", "000004.png"]
    with Image.open(paths[0]) as image:
        assert image.size == (2 * (5 * 160 + 4 * 4), 2 * 210)
    assert (tmp_path / "film.mp4").stat().st_size > 1000


def test_a_query_that_looks_at_one_place_lights_up_that_place():
    maps = np.zeros((1, 10, 10), np.float32)
    maps[0, 2, 7] = 1
    drawn = visualize_aaa.draw(np.zeros((210, 160, 3), np.uint8), maps)[::2, ::2]
    panel = drawn[:, 160 + 4 :].sum(axis=-1)
    row, column = np.unravel_index(panel.argmax(), panel.shape)
    assert 2 * 21 <= row < 3 * 21
    assert 7 * 16 <= column < 8 * 16


def test_an_agent_without_attention_is_refused(tmp_path, capsys):
    save(tmp_path / "mine", "atari")
    assert visualize_aaa.main(["--savedir", str(tmp_path), "--xpid=mine"]) == 2
    assert "only aaa has attention" in capsys.readouterr().err
