import torch

from torchbeast.analysis.filter_agents import make_untrained
from torchbeast.models import AgentConfig, make_agent


def test_an_untrained_network_sees_the_games_as_the_agent_does():
    trained = make_agent(AgentConfig(tasks=("A", "B"), num_actions=5, use_popart=True)).eval()
    trained.frame_mean.fill_(7.0)
    trained.frame_scale.fill_(0.25)
    before = torch.get_rng_state()
    first, same, other = (make_untrained(trained, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.config == trained.config
    assert not first.training
    assert torch.equal(first.frame_mean, trained.frame_mean)
    assert torch.equal(first.frame_scale, trained.frame_scale)
    assert torch.equal(first.fc.weight, same.fc.weight)
    assert not torch.equal(first.fc.weight, other.fc.weight)
    assert not torch.equal(first.fc.weight, trained.fc.weight)
