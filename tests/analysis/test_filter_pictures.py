import numpy as np
import torch

from torchbeast.analysis import filter_pictures, filters
from torchbeast.models import AgentConfig, make_agent


def test_excitation_climbs():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(tasks=("A", "B"))).eval()
    pictures = filter_pictures.excite(agent, "resnet1_0_1", [0, 5])
    assert pictures.shape == (2, 4, 84, 84)
    activation = []
    module = filters.find_layer(agent, "resnet1_0_1")
    module.register_forward_hook(lambda _, __, output: activation.append(output))
    task = torch.zeros(2, dtype=torch.int64)
    with torch.no_grad():
        agent.encode_frames(torch.from_numpy(pictures), task)
        agent.encode_frames(torch.randint(256, (2, 4, 84, 84)).float(), task)
    for i, k in enumerate((0, 5)):
        assert activation[0][i, k].mean() > activation[1][i, k].mean() + 0.01


def test_of_pictures_in_colour_the_newest_is_drawn_in_colour():
    pictures = np.zeros((2, 6, 4, 4))
    pictures[1, 3, :2] = 10  # Red in the newest one.
    sheet = filter_pictures.sheet(pictures, channels=3)
    assert sheet.shape == (4, 4 + filter_pictures.GAP + 4, 3)
    assert (sheet[:2, -4:] == (255, 0, 0)).all()
    assert sheet[:2, :4].max() == sheet[2:].max() == 0
