import csv

import numpy as np
import pytest
import torch

from tests.analysis.permuted import permute_agent, random_permutations
from torchbeast.analysis import analyze_resnet, similarity
from torchbeast.analysis.activations import debiased_cka, gram
from torchbeast.analysis.similarity import find_interval, find_layers
from torchbeast.evaluate.trained import Trained
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint

PONG = "PongNoFrameskip-v4"


def features(rng, count, width):
    return torch.from_numpy(rng.normal(size=(count, width)))


def test_the_interval_contains_the_value_and_narrows_with_more_frames():
    rng = np.random.default_rng(0)
    widths = []
    for count in (40, 400):
        x = features(rng, count, 8)
        pair = gram(x), gram(x + features(rng, count, 8))
        low, high = find_interval(*pair)
        assert low < debiased_cka(*pair) < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


def test_layers_come_in_the_order_of_the_data():
    assert list(find_layers(make_agent(AgentConfig(agent_type="atari")))) == [
        "conv1",
        "conv2",
        "conv3",
        "fc",
    ]
    names = list(find_layers(make_agent(AgentConfig())))
    assert names[:3] == ["feat_convs.0.0", "resnet1.0.1", "resnet1.0.3"]
    assert names[-2:] == ["resnet2.2.3", "fc"]
    assert len(names) == 16


def test_a_copy_with_other_channel_order_responds_alike_and_another_network_less():
    torch.manual_seed(0)
    agents = [make_agent(AgentConfig()).eval() for _ in range(2)]
    copy = make_agent(AgentConfig()).eval()
    copy.load_state_dict(agents[0].state_dict())
    permute_agent(copy, random_permutations(1))
    one, other, permuted = (Trained(agent, "", "") for agent in (*agents, copy))
    rows = similarity.compare_on_game(one, permuted, PONG, 16)
    assert [row.cka for row in rows] == pytest.approx([1] * 16, abs=1e-4)
    assert np.isnan([row.control for row in rows]).all()
    rows = similarity.compare_on_game(one, other, PONG, 16, control=[one, permuted])
    assert min(row.cka for row in rows) < 0.99
    assert [row.control for row in rows] == pytest.approx([1] * 16, abs=1e-4)


def test_untrained_agents_lie_near_the_band_of_untrained_pairs():
    agents = []
    for seed in (11, 12):
        torch.manual_seed(seed)
        agent = make_agent(AgentConfig(agent_type="atari")).eval()
        agent.scale_initial_weights()
        agents.append(Trained(agent, "", ""))
    for row in similarity.compare_on_game(*agents, PONG, 32):
        width = row.untrained_high - row.untrained_low
        assert (
            row.untrained_low - 3 * width - 0.02 < row.cka < row.untrained_high + 3 * width + 0.02
        )


def save(path, seed, agent_type="atari", **config):
    torch.manual_seed(seed)
    agent = make_agent(AgentConfig(agent_type=agent_type, **config))
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(path / "model.tar", contents)


def test_the_command_writes_a_table_and_a_figure(tmp_path, capsys):
    for i, name in enumerate("abcd"):
        save(tmp_path / name, i)
    arguments = [
        "--mode=similarity", f"--load_path={tmp_path / 'a'}", f"--other={tmp_path / 'b'}",
        "--control", str(tmp_path / "c"), str(tmp_path / "d"), "--cka_frames=16",
        f"--save_dir={tmp_path / 'out'}",
    ]  # fmt: skip
    assert analyze_resnet.main(arguments) == 0
    with open(tmp_path / "out" / "similarity.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == ["conv1", "conv2", "conv3", "fc"]
    assert {row["game"] for row in rows} == {"Pong"}
    assert (tmp_path / "out" / "similarity.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--mode similarity needs --other"),
        (["--other=x", "--cka_frames=4"], "must be at least 8"),
        (["--other=/nowhere"], "No checkpoint at"),
        (["--other=b", "--cka_game=Breakout"], "a does not know Breakout: it knows Pong"),
        (["--other=b", "--control", "b", "breakout"], "have no game in common"),
        (["--other=b", "--control", "b", "resnet"], "Agents of one network and one frame format"),
    ],
)
def test_wrong_input_is_one_line(arguments, message, assert_misuse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "a", 0)
    save(tmp_path / "b", 1)
    save(tmp_path / "breakout", 2, tasks=("BreakoutNoFrameskip-v4",), num_actions=4)
    save(tmp_path / "resnet", 3, "resnet")
    arguments = ["--mode=similarity", "--load_path=a", *arguments]
    assert_misuse(analyze_resnet.main, arguments, message)
