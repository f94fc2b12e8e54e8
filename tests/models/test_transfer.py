import pytest
import torch

from torchbeast.models import AgentConfig, make_agent
from torchbeast.models.transfer import transfer

SMALL = AgentConfig(agent_type="atari", observation_shape=(1, 36, 36), num_actions=3, tasks=("a",))


def make(seed, **changes):
    torch.manual_seed(seed)
    agent = make_agent(SMALL._replace(**changes)).eval()
    agent.set_frame_statistics(
        torch.full_like(agent.frame_mean, seed), torch.full_like(agent.frame_scale, 20.0 + seed)
    )
    return agent


def run(agent, last_action=0, task=0):
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "frame": torch.randint(256, (2, 1, 1, 36, 36), generator=generator).to(torch.uint8),
        "reward": torch.ones(2, 1),
        "done": torch.zeros(2, 1, dtype=torch.bool),
        "task": torch.full((2, 1), task),
        "last_action": torch.full((2, 1), last_action),
    }
    output, _ = agent(inputs, agent.initial_state(1))
    return output


@pytest.mark.parametrize("agent_type", ["atari", "resnet", "aaa"])
def test_the_same_games_and_actions_make_the_same_agent(agent_type):
    options = {"agent_type": agent_type, "use_popart": True, "use_lstm": agent_type != "aaa"}
    source, target = make(1, **options), make(2, **options)
    transferred = transfer(source, target, {0: 0}, {0: 0, 1: 1, 2: 2})
    assert not transferred.new
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value), name


@pytest.mark.parametrize("agent_type", ["atari", "resnet", "aaa"])
def test_known_actions_keep_their_meaning_among_others(agent_type):
    source = make(1, agent_type=agent_type)
    target = make(2, agent_type=agent_type, num_actions=5)
    # Actions 0, 1, 2 of the source are 4, 0, 3.
    transferred = transfer(source, target, {0: 0}, {4: 0, 0: 1, 3: 2})
    assert not transferred.new
    for mine, theirs in ((4, 0), (0, 1), (3, 2)):
        new, old = run(target, last_action=mine), run(source, last_action=theirs)
        torch.testing.assert_close(new.policy_logits[..., [4, 0, 3]], old.policy_logits)
        torch.testing.assert_close(new.baseline, old.baseline)


def test_a_new_action_is_neither_likely_nor_unlikely():
    source, target = make(1), make(2, num_actions=4)
    with torch.no_grad():
        source.policy.bias += 50.0  # Means nothing: what counts are differences.
    target.scale_initial_weights()
    transfer(source, target, {0: 0}, {0: 0, 1: 1, 2: 2})
    probabilities = torch.softmax(run(target).policy_logits, dim=-1)
    assert (probabilities[..., 3] > 0.1).all()
    assert (probabilities[..., 3] < 0.5).all()


def test_value_heads_are_those_of_their_games():
    source = make(1, use_popart=True, tasks=("a", "b"))
    source.baseline.set_statistics([(10.0, 2.0), (20.0, 3.0)])
    target = make(2, use_popart=True, tasks=("b", "c", "a"))
    target.baseline.set_statistics([(-1.0, 7.0)] * 3)
    assert "baseline" in transfer(source, target, {0: 1, 2: 0}, {0: 0, 1: 1, 2: 2}).copied
    assert target.baseline.mu.tolist() == [20.0, -1.0, 10.0]
    assert target.baseline.sigma.tolist() == [3.0, 7.0, 2.0]
    assert target.frame_mean[:, 0, 0, 0].tolist() == [1.0, 2.0, 1.0]
    for mine, theirs in ((0, 1), (2, 0)):
        new, old = run(target, task=mine).baseline, run(source, task=theirs).baseline
        torch.testing.assert_close(new[..., mine], old[..., theirs])


@pytest.mark.parametrize(
    ("source", "target", "games"),
    [
        # One head, and a game it does not know.
        ({"tasks": ("a",)}, {"tasks": ("a", "b")}, {0: 0}),
        ({}, {"use_popart": True}, {0: 0}),
        ({}, {}, {}),
    ],
)
def test_a_value_head_that_means_something_else_is_left(source, target, games):
    new = make(2, **target)
    before = new.baseline.weight.clone()
    transferred = transfer(make(1, **source), new, games, {0: 0, 1: 1, 2: 2})
    assert "baseline" in transferred.new
    assert ("policy" in transferred.copied) == bool(games)
    assert torch.equal(new.baseline.weight, before)


def test_a_part_of_another_size_is_left_whole():
    # The shallow network's memory is as wide as what it sees, the last action included.
    source, target = make(1, use_lstm=True), make(2, use_lstm=True, num_actions=4)
    before = {k: v.clone() for k, v in target.core.state_dict().items()}
    transferred = transfer(source, target, {0: 0}, {0: 0, 1: 1, 2: 2})
    assert transferred.new == ("core", "policy", "baseline")
    assert all(torch.equal(before[k], v) for k, v in target.core.state_dict().items())
    assert torch.equal(source.conv1.weight, target.conv1.weight)
