import csv
import signal

import numpy as np
import pytest
import torch

import tests.moving_target  # noqa: F401
from tests.analysis.permuted import permute_agent, random_permutations
from tests.interrupting import Interrupt, interrupt_at
from torchbeast.analysis import analyze_resnet, stitching, stitching_report
from torchbeast.analysis.moments import Moments
from torchbeast.analysis.stages import StagedEncoder
from torchbeast.analysis.stitched_agent import Front, LeastSquares, StitchedAgent, fit_maps
from torchbeast.analysis.stitching import read_policy
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint

GAME = "tests.moving_target:MovingTarget-v0"
SHAPE = (2, 36, 36)


@pytest.fixture(autouse=True)
def custom_environments_are_allowed(monkeypatch):
    monkeypatch.setattr("torchbeast.analysis.agents.allow", lambda games, flag: games)


def make(seed, agent_type="resnet", **config):
    torch.manual_seed(seed)
    values = {"observation_shape": SHAPE, "num_actions": 3, "tasks": (GAME,), **config}
    agent = make_agent(AgentConfig(agent_type=agent_type, **values)).eval()
    agent.scale_initial_weights()
    with torch.no_grad():  # New agents hardly prefer any action.
        agent.policy.weight.mul_(100)
        for name, parameter in agent.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-0.2, 0.2)
    return agent


def random_moments(count, shape=SHAPE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    zeros = torch.zeros(1, count)
    inputs = EnvOutput(
        frame=torch.randint(256, (1, count, *shape), dtype=torch.uint8, generator=generator),
        reward=zeros,
        done=zeros.bool(),
        task=zeros.int(),
        episode_step=zeros.int(),
        episode_return=zeros,
        truncated=zeros.bool(),
        game_over=zeros.bool(),
        last_action=zeros.long(),
    )
    return Moments(inputs, ())


def test_the_map_is_the_one_that_made_the_targets():
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(3, 5, generator=generator), torch.randn(5, generator=generator)
    fit = LeastSquares(3, 5)
    for _ in range(2):
        x = 7 + torch.randn(4, 3, 6, 6, generator=generator)
        fit.add(x, torch.einsum("nihw,io->nohw", x, weight) + bias[:, None, None])
    found = fit.solve()
    np.testing.assert_allclose(found.weight, weight, atol=1e-5)
    np.testing.assert_allclose(found.bias, bias, atol=1e-4)
    y = torch.einsum("nihw,io->nohw", x, weight) + bias[:, None, None]
    torch.testing.assert_close(found(x), y, atol=1e-4, rtol=1e-4)


def test_channels_that_say_nothing_or_the_same_twice_do_no_harm():
    x = torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    x[:, 1], x[:, 2] = x[:, 0], 4
    fit = LeastSquares(3, 1)
    fit.add(x, 2 * x[:, :1] + 1)
    found = fit.solve()
    assert found.weight.abs().max() < 3
    torch.testing.assert_close(found(x), 2 * x[:, :1] + 1, atol=1e-4, rtol=1e-4)
    silent = LeastSquares(2, 1)
    silent.add(torch.zeros(4, 2, 3, 3), x[:4, :1, :3, :3])
    torch.testing.assert_close(silent.solve().bias, x[:4, :1, :3, :3].mean().double().view(1))


@pytest.fixture(scope="module")
def resnets():
    """An agent, the same with its channels in another order, another agent; frames of 84 x 84."""
    agents = [make(seed, observation_shape=(4, 84, 84)) for seed in (0, 0, 1)]
    permute_agent(agents[1], random_permutations(3))
    return agents, random_moments(6, (4, 84, 84))


def divergences(front, back, moments):
    """The mean divergence from the back's policy by number of stitched layers."""
    one = Front("", front, 0)
    maps = fit_maps(one, back, 0, moments)
    expected = read_policy(back, moments, 0)
    result = []
    for done in range(1, len(maps) + 1):
        agent = StitchedAgent(one, back, done, maps[done - 1]).eval()
        policy = read_policy(agent, moments, 0)
        result.append(expected.divergence(policy).mean().item())
    return np.array(result)


@torch.inference_mode()
def test_a_network_in_another_order_of_channels_can_be_stitched_anywhere(resnets):
    (agent, permuted, other), moments = resnets
    same = divergences(permuted, agent, moments)
    different = divergences(other, agent, moments)
    assert len(same) == 15
    assert same.max() < 1e-5
    assert different.min() > 100 * same.max()


@torch.inference_mode()
def test_a_map_must_be_fitted_for_each_plane_that_is_read_behind_the_cut(resnets):
    (agent, permuted, _), moments = resnets
    maps = fit_maps(Front("", permuted, 0), agent, 0, moments)
    layers = StagedEncoder(agent).layers
    inside = [layer for layer, row in zip(layers, maps, strict=True) if len(row) == 2]
    assert inside == [f"resnet{block}_{i}_1" for i in range(3) for block in (1, 2)]


def save(path, agent):
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(path / "model.tar", contents)


def stitch(tmp_path, *arguments, code=0):
    result = analyze_resnet.main(
        ["--mode=stitching", f"--save_dir={tmp_path / 'out'}", "--frames=160", "--games=2",
         *map(str, arguments)]
    )  # fmt: skip
    assert result == code
    with open(tmp_path / "out" / "stitching.csv") as file:
        return list(csv.DictReader(file))


def copy_convolutions(source, target):
    """Gives ``target`` the convolutions of ``source`` with their channels in another order."""
    generator = torch.Generator().manual_seed(0)
    before = torch.arange(source.config.observation_shape[0])
    with torch.no_grad():
        for name in ("conv1", "conv2", "conv3"):
            one, other = source.get_submodule(name), target.get_submodule(name)
            after = torch.randperm(one.out_channels, generator=generator)
            other.weight.copy_(one.weight[after][:, before])
            other.bias.copy_(one.bias[after])
            before = after


def test_a_permuted_copy_keeps_policy_and_score_and_controls_stand_beside_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(stitching, "STEPS_APART", 4)
    monkeypatch.setattr(stitching, "UNTRAINED", 2)
    # The game has another index in each.
    back = make(0, "atari", tasks=("Other-v0", GAME), use_popart=True)
    copy = make(1, "atari", tasks=("Other-v0", "Third-v0", GAME))
    copy_convolutions(back, copy)
    for agent in (back, copy):
        agent.frame_mean[-1] = 20
        agent.frame_scale[-1] = 0.01
    for name, agent in (("copy", copy), ("back", back), ("control", make(2, "atari"))):
        save(tmp_path / name, agent)
    rows = stitch(
        tmp_path, f"--load_path={tmp_path / 'copy'}", f"--other={tmp_path / 'back'}",
        "--control", tmp_path / "control",
    )  # fmt: skip
    intact, own, blind = rows[:3]
    assert (intact["front"], own["front"], blind["kind"]) == ("back", "copy", "blind")
    assert float(intact["policy"]) == 0
    assert own["policy"] == "nan"
    by_kind = {
        kind: [row for row in rows if row["kind"] == kind]
        for kind in ("front", "untrained", "control")
    }
    assert [row["layer"] for row in by_kind["front"]] == ["conv1", "conv2", "conv3"]
    assert len(by_kind["untrained"]) == 6
    assert len(by_kind["control"]) == 3
    assert [row["games"] for row in by_kind["untrained"]] == ["2"] * 3 + ["0"] * 3
    for row in by_kind["front"]:
        assert float(row["policy"]) < 1e-6
        assert row["score"] == intact["score"]
        assert float(row["score_low"]) <= float(row["score"]) <= float(row["score_high"])
        assert row["games"] == "2"
    assert (tmp_path / "out" / "stitching.png").stat().st_size > 10_000


def test_every_control_is_drawn_in_its_own_way(tmp_path, monkeypatch, capsys):
    figures = []
    monkeypatch.setattr(
        stitching_report, "save_figure", lambda figure, path, **_: figures.append(figure) or path
    )
    names = ("a", "b", "c0", "c1", "c2", "c3", "c4")
    for seed, name in enumerate(names):
        save(tmp_path / name, make(seed, "atari"))
    stitch(
        tmp_path, f"--load_path={tmp_path / 'a'}", f"--other={tmp_path / 'b'}", "--games=0",
        "--frames=16", "--layers=conv1", "--control", *(tmp_path / name for name in names[2:]),
    )  # fmt: skip
    (axis,) = figures[0].axes
    labels = {bars.get_label(): bars.lines[0] for bars in axis.containers}
    controls = [labels[f"front {name} (control)"] for name in names[2:]]
    assert len({(line.get_color(), line.get_marker()) for line in controls}) == 5


def test_ctrl_c_saves_the_stitched_agents_until_then(tmp_path, monkeypatch, capsys):
    send_interrupt = Interrupt()

    class Interrupting(stitching.Bench):
        def judge(self, agent, row, *, with_games=True):
            if row.layer == "conv2":
                send_interrupt()
            return super().judge(agent, row, with_games=with_games)

    monkeypatch.setattr(stitching, "Bench", Interrupting)
    for seed, name in enumerate(("a", "b")):
        save(tmp_path / name, make(seed, "atari"))
    rows = stitch(
        tmp_path, f"--load_path={tmp_path / 'a'}", f"--other={tmp_path / 'b'}", "--games=0",
        "--frames=16", code=128 + signal.SIGINT,
    )  # fmt: skip
    assert [row["layer"] for row in rows] == ["", "", "", "conv1", "conv2"]
    assert (tmp_path / "out" / "stitching.png").stat().st_size > 10_000
    assert "Saving what is complete" in capsys.readouterr().err


@pytest.mark.parametrize("work", ["play_moments", "play", "fit_maps"])
def test_ctrl_c_before_an_agent_is_stitched_ends_at_once(tmp_path, monkeypatch, capsys, work):
    interrupt_at(monkeypatch, stitching, work)
    for seed, name in enumerate(("a", "b")):
        save(tmp_path / name, make(seed, "atari"))
    arguments = [f"--load_path={tmp_path / 'a'}", f"--other={tmp_path / 'b'}", "--games=1"]
    arguments += ["--mode=stitching", f"--save_dir={tmp_path / 'out'}", "--frames=16"]
    assert analyze_resnet.main(arguments) == 128 + signal.SIGINT
    assert list((tmp_path / "out").iterdir()) == []
    assert "Saving nothing: no agent is stitched" in capsys.readouterr().err


def test_layers_can_be_chosen_and_games_left_out(tmp_path, capsys):
    for seed, name in enumerate(("a", "b")):
        save(tmp_path / name, make(seed, "atari"))
    rows = stitch(
        tmp_path, f"--load_path={tmp_path / 'a'}", f"--other={tmp_path / 'b'}",
        "--layers=conv2", "--games=0", "--frames=16",
    )  # fmt: skip
    assert {row["layer"] for row in rows} == {"", "conv2"}
    assert {row["score"] for row in rows} == {"nan"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--mode stitching needs --other"),
        (["--other=resnet"], "Agents of one network"),
        (["--other=b", "--layers=conv4"], "the agent has no conv4: it has conv1, conv2, conv3"),
        (["--other=b", "--game=Pong"], "a does not know Pong: it knows MovingTarget"),
        (["--other=c"], "a and c have no game in common"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, monkeypatch, arguments, message, assert_misuse):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "a", make(0, "atari"))
    name = arguments[0].partition("=")[2] if arguments else "b"
    config = {"tasks": ("Other-v0",)} if name == "c" else {}
    save(tmp_path / name, make(1, "resnet" if name == "resnet" else "atari", **config))
    assert_misuse(analyze_resnet.main, ["--mode=stitching", "--load_path=a", *arguments], message)


def test_agents_that_see_games_otherwise_are_refused():
    one, other = (
        stitching.Trained(make(0, "atari"), "", "", observation)
        for observation in (
            stitching.Trained._field_defaults["observation"],
            stitching.Trained._field_defaults["observation"]._replace(preprocessing="machado"),
        )
    )
    with pytest.raises(UsageError, match="same preprocessing"):
        stitching.check_agents([one, other], ())
