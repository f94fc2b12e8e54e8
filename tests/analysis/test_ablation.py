import csv
import dataclasses
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot

import tests.moving_target  # noqa: F401
from tests.analysis.test_stitching import GAME, make, random_moments, save
from tests.interrupting import Interrupt, interrupt_at
from torchbeast.analysis import ablation, ablation_report, analyze_resnet
from torchbeast.analysis.ablation import AgentEffects, Filter, GameEffects, measure, remove_filter
from torchbeast.analysis.stages import Heads
from torchbeast.analysis.stitching import read_policy
from torchbeast.evaluate.trained import Trained

SHAPE = (4, 36, 36)


@pytest.fixture(autouse=True)
def custom_environments_are_allowed(monkeypatch):
    monkeypatch.setattr("torchbeast.analysis.agents.allow", lambda games, flag: games)


def expected_effects(agent, moments, task, one):
    """By a whole forward pass of a copy in which the filter's weights are zero."""
    intact, changed = (
        read_policy(player, moments, task) for player in (agent, remove_filter(agent, one))
    )
    return intact.divergence(changed).numpy(), (changed.value - intact.value).abs().numpy()


@pytest.mark.parametrize("agent_type", ["atari", "resnet"])
@torch.inference_mode()
def test_recomputing_from_the_layer_on_equals_a_whole_pass_without_the_filter(agent_type):
    agent = make(0, agent_type, observation_shape=SHAPE, tasks=("A", "B"), use_popart=True)
    moments = random_moments(5, SHAPE)
    moments.inputs.task.fill_(1)
    chosen = [one for one in ablation.list_filters(agent) if one.channel in (3, 8, 15)]
    policy, value = measure(agent, moments, 1, chosen)
    assert policy.shape == value.shape == (len(chosen), 5)
    for one, row, change in zip(chosen, policy, value, strict=True):
        expected, expected_change = expected_effects(agent, moments, 1, one)
        np.testing.assert_allclose(row, expected, atol=1e-6, rtol=1e-3)
        np.testing.assert_allclose(change, expected_change, atol=1e-5, rtol=1e-4)
    for layer in {one.layer for one in chosen}:
        assert policy[[one.layer == layer for one in chosen]].max() > 2e-5


@torch.inference_mode()
def test_batches_and_memory_change_nothing(monkeypatch):
    agent = make(0, "atari", observation_shape=SHAPE, use_lstm=True)
    moments = random_moments(5, SHAPE)
    state = tuple(torch.randn(2, 5, agent.core.hidden_size) for _ in range(2))
    moments = dataclasses.replace(moments, state=state)
    filters = ablation.list_filters(agent, ["conv1"])
    whole = measure(agent, moments, 0, filters)
    monkeypatch.setattr(ablation, "MOMENTS_AT_ONCE", 2)
    for one, other in zip(whole, measure(agent, moments, 0, filters), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    empty = dataclasses.replace(moments, state=agent.initial_state(5))
    forgetful = measure(agent, empty, 0, filters)
    assert not np.allclose(whole[0], forgetful[0], rtol=0.01)


def glue(*, biases):
    """A shallow agent of two disjoint halves, each of which sees two planes of four.

    The policy reads both halves, the first game's value the first half only, the second game's the
    second. Without biases a half says nothing where its planes are blank.
    """
    agent = make(0, "atari", observation_shape=SHAPE, tasks=("A", "B"), use_popart=True)
    with torch.no_grad():
        for layer in (agent.conv1, agent.conv2, agent.conv3, agent.fc):
            rows, columns = layer.weight.shape[0] // 2, layer.weight.shape[1] // 2
            layer.weight[:rows, columns:] = 0
            layer.weight[rows:, :columns] = 0
            layer.bias.mul_(0) if not biases else layer.bias.fill_(0.3)
        agent.baseline.weight[0, 256:512] = 0
        agent.baseline.weight[1, :256] = 0
    return agent


def half(one):
    return one.channel // {"conv1": 16, "conv2": 32, "conv3": 32}[one.layer]


def block_sums(agent, which):
    """Sums ``[2, 2]`` of effects by half of the filters and game; each game has its own planes."""
    filters = ablation.list_filters(agent)
    halves = np.array([half(one) for one in filters])
    result = np.zeros((2, 2))
    for game in (0, 1):
        moments = random_moments(4, SHAPE, seed=game)
        moments.inputs.frame[:, :, 2 - 2 * game : 4 - 2 * game] = 0  # The other game's planes.
        moments.inputs.task.fill_(game)
        effects = measure(agent, moments, game, filters)[which]
        result[:, game] = [effects[halves == i].sum() for i in (0, 1)]
    return result


def test_filters_of_one_of_two_glued_networks_change_the_policy_of_one_game_only():
    sums = block_sums(glue(biases=False), 0)
    assert np.diag(sums).min() > 0.1
    assert sums[0, 1] == sums[1, 0] == 0


def test_value_heads_that_read_disjoint_filters_change_in_one_game_only():
    agent = glue(biases=True)
    values = block_sums(agent, 1)
    assert np.diag(values).min() > 0.1
    assert values[0, 1] == values[1, 0] == 0
    # The same filters change the policy of both games, which reads both halves.
    assert block_sums(agent, 0).min() > 0.001


def test_a_filter_that_nothing_reads_changes_nothing():
    agent = make(0, "atari", observation_shape=SHAPE)
    with torch.no_grad():
        agent.conv2.weight[:, 7] = 0
    filters = [Filter("conv1", 6), Filter("conv1", 7)]
    policy, value = measure(agent, random_moments(4, SHAPE), 0, filters)
    assert policy[0].mean() > 1e-5
    assert (policy[1] == 0).all()
    assert (value[1] == 0).all()


def test_an_agent_that_does_the_same_everywhere_has_no_effects_and_can_be_drawn(tmp_path):
    agent = make(0, "atari", observation_shape=SHAPE)
    with torch.no_grad():
        for head in (agent.policy, agent.baseline):
            head.weight.zero_()
    filters = ablation.list_filters(agent)
    policy, value = measure(agent, random_moments(8, SHAPE), 0, filters)
    assert len(policy) == 32 + 64 + 64
    assert not policy.any()
    assert not value.any()
    # Games are the only thing that differs: the first filter costs 2 points.
    returns = np.full((len(filters), 3), 5.0)
    returns[0] = 3
    game = GameEffects("Game", policy, value, policy, np.full(3, 5.0), returns)
    effects = AgentEffects("constant", filters, (game,))
    assert np.isnan(ablation.rank_agreement(effects)).all()
    paths = ablation_report.save([effects], tmp_path)
    assert all(path.stat().st_size for path in paths)
    changes = [float(row["return_change"]) for row in read(tmp_path / "ablation.csv")]
    assert changes == [-2, *[0] * 159]


def test_full_games_are_those_of_the_agent_without_the_filter():
    agent = make(0, "atari")
    with torch.no_grad():
        agent.conv2.weight[:, 7] = 0  # Nothing reads this filter.
        for layer in (agent.conv1, agent.conv2, agent.conv3, agent.fc):
            layer.bias.zero_()
    config = ablation.AblationConfig((), None, (), 8, 6, False, 0, Path())
    filters = [Filter("conv1", 7), Filter("conv1", 6)]
    intact, without = ablation._play_without(Trained(agent, "", ""), GAME, filters, config)
    assert without.shape == (2, 6)
    assert without[0].tolist() == intact.tolist()
    assert set(np.abs(without).flatten()) == {1}


def test_values_of_different_units_have_scales_of_their_own():
    filters = (Filter("conv1", 0),)
    agents = []
    for size, use_popart in ((1.0, True), (40.0, False), (2.0, True)):
        change = np.full((1, 4), size)
        game = GameEffects("Game", change, change, change, np.zeros(0), np.zeros((1, 0)))
        agents.append(AgentEffects("agent", filters, (game,), use_popart))
    figure = ablation_report.draw(agents)
    images = [image for axis in figure.axes for image in axis.get_images()]
    policies, values = images[:3], images[3:6]
    assert [image.norm.vmax for image in policies] == [40, 40, 40]
    assert [image.norm.vmax for image in values] == [2, 40, 2]
    labels = [image.colorbar.ax.get_ylabel() for image in values]
    assert labels == ["sigma", "returns", "sigma"]
    pyplot.close(figure)


def make_effects(first, second, filters):
    """Two games with given effects ``[F]``, the same at 16 moments."""
    games = [
        GameEffects("", np.repeat(x[:, None], 16, 1), *[np.zeros((len(x), 16))] * 2, *[x[:0]] * 2)
        for x in (first, second)
    ]
    return AgentEffects("", filters, tuple(games))


def test_games_agree_about_filters_of_a_layer_whatever_the_layers_sizes_are():
    filters = tuple(Filter(layer, i) for layer in ("a", "b") for i in range(30))
    rng = np.random.default_rng(0)
    scale = np.repeat([1, 1000], 30)
    first, second = rng.random(60) * scale, rng.random(60) * scale
    agreement = ablation.rank_agreement(make_effects(first, second, filters))
    np.testing.assert_allclose(np.diag(agreement), 1)
    assert abs(agreement[0, 1]) < 0.4  # Over both layers at once it would be 0.75.
    agreement = ablation.rank_agreement(make_effects(first, -first, filters))
    assert agreement[0, 1] == pytest.approx(-1)


def test_the_divergence_of_policies_that_hardly_differ_is_never_negative():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(100, 6, generator=generator, dtype=torch.float64)
    one = Heads(logits.log_softmax(dim=-1), torch.zeros(100))
    other = Heads(
        (logits + 1e-9 * torch.randn(100, 6, generator=generator)).log_softmax(-1), one[1]
    )
    assert one.divergence(other).min() >= 0


def read(path):
    with open(path) as file:
        return list(csv.DictReader(file))


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "one", make(0, "atari"))
    save(tmp_path / "two", make(1, "atari", tasks=("Other-v0", GAME), use_popart=True))
    save(tmp_path / "three", make(1, "atari", tasks=("Other-v0",)))


def run(*arguments):
    return analyze_resnet.main(["--mode=ablation", "--frames=16", "--save_dir=out", *arguments])


def test_ctrl_c_saves_the_games_until_then(saved, tmp_path, monkeypatch, capsys):
    def interrupt(trained, *arguments, **options):
        if trained.xpid == "two":
            send_interrupt()
        return play_moments(trained, *arguments, **options)

    send_interrupt = Interrupt()
    play_moments = ablation.play_moments
    monkeypatch.setattr(ablation, "play_moments", interrupt)
    code = run("--load_path=one", "--other=two", f"--game={GAME}", "--layers=conv1")
    assert code == 128 + signal.SIGINT
    assert {row["agent"] for row in read(tmp_path / "out" / "ablation.csv")} == {"one"}
    assert (tmp_path / "out" / "ablation.png").exists()
    assert "Saving the games that are complete" in capsys.readouterr().err


@pytest.mark.parametrize("work", ["play_moments", "measure", "play"])
def test_ctrl_c_before_a_game_is_complete_ends_at_once(saved, tmp_path, monkeypatch, capsys, work):
    interrupt_at(monkeypatch, ablation, work)
    code = run("--load_path=one", f"--game={GAME}", "--layers=conv1", "--games_per_filter=1")
    assert code == 128 + signal.SIGINT
    assert list((tmp_path / "out").iterdir()) == []
    assert "Saving nothing: no game is complete" in capsys.readouterr().err


def test_the_command_writes_a_matrix_and_a_figure_of_two_agents(
    saved, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(ablation, "STEPS_APART", 4)
    assert run("--load_path=one", "--other=two", f"--game={GAME}", "--layers=conv1") == 0
    rows = read(tmp_path / "out" / "ablation.csv")
    assert [(row["agent"], row["filter"]) for row in rows] == [
        (agent, str(i)) for agent in ("one", "two") for i in range(32)
    ]
    for row in rows:
        for name in ("policy", "value"):
            low, mean, high = (float(row[name + end]) for end in ("_low", "", "_high"))
            assert 0 <= low <= mean <= high
    arrays = np.load(tmp_path / "out" / "ablation.npz")
    assert arrays["0_policy"].shape == (32, 1)
    np.testing.assert_allclose(
        arrays["0_policy"][:, 0], [float(row["policy"]) for row in rows[:32]], rtol=1e-4
    )
    sums = read(tmp_path / "out" / "ablation_layers.csv")
    assert float(sums[0]["policy"]) == pytest.approx(arrays["0_policy"].sum(), rel=1e-4)
    assert len(read(tmp_path / "out" / "ablation_agreement.csv")) == 2
    assert (tmp_path / "out" / "ablation.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--load_path=one", "--game=Pong"], "one does not know Pong: it knows MovingTarget"),
        (
            ["--load_path=one", "--other=three", f"--game={GAME}"],
            "three does not know Moving",
        ),
        (["--load_path=one", "--layers=conv9"], "the agent has no conv9"),
        (["--load_path=/nowhere"], "No checkpoint at"),
    ],
)
def test_wrong_input_is_one_line(saved, arguments, message, assert_misuse):
    assert_misuse(analyze_resnet.main, ["--mode=ablation", *arguments], message)
