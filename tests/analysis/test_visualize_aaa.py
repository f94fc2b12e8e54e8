import numpy as np
import pytest
import torch
from PIL import Image

from tests import checkpoints
from torchbeast.analysis import visualize_aaa
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.pictures import HEADER_HEIGHT


def save(path, agent_type):
    torch.manual_seed(0)
    checkpoints.save_agent(path / "model.tar", make_agent(AgentConfig(agent_type=agent_type)))


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
        assert image.size == (2 * 5 * 160 + 4 * 8, 2 * 210 + HEADER_HEIGHT)
    assert (tmp_path / "film.mp4").stat().st_size > 1000
    # A call that fails leaves the pictures.
    assert visualize_aaa.main([*arguments, "--movie", str(paths[0] / "film.mp4")]) == 2
    assert all(path.exists() for path in paths)


def test_a_query_that_looks_at_one_place_lights_up_what_that_place_sees():
    agent = make_agent(AgentConfig(agent_type="aaa"))
    grid = visualize_aaa.make_grid(agent)
    frame = torch.zeros(1, 4, 84, 84, requires_grad=True)
    seen = agent.vision(frame)
    assert seen.shape[2:] == (10, 10)
    seen[0, :, 2, 7].sum().backward()
    rows, columns = (indices.unique() for indices in frame.grad.abs().sum(1)[0].nonzero().T)
    maps = np.zeros((1, 10, 10), np.float32)
    maps[0, 2, 7] = 1
    # Drawn with a pixel of the screen for each of the observation.
    drawn = visualize_aaa.draw(np.zeros((84, 84, 3), np.uint8), maps, grid, peak=1)
    panel = drawn[HEADER_HEIGHT::2, 2 * 84 + 8 :: 2].sum(axis=-1)
    lit_rows, lit_columns = np.nonzero(panel > 0.6 * panel.max())
    assert lit_rows.mean() == pytest.approx((rows.min() + rows.max()) / 2, abs=0.5)
    assert lit_columns.mean() == pytest.approx((columns.min() + columns.max()) / 2, abs=0.5)


def test_an_agent_without_attention_is_refused(tmp_path, capsys):
    save(tmp_path / "mine", "atari")
    assert visualize_aaa.main(["--savedir", str(tmp_path), "--xpid=mine"]) == 2
    assert "only aaa has attention" in capsys.readouterr().err
