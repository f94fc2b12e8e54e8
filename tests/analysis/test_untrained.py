import torch

from torchbeast.analysis.filter_comp import find_agents, make_untrained, save_untrained
from torchbeast.models import AgentConfig, from_checkpoint, make_agent
from torchbeast.records import checkpoint, run_files


def make_trained():
    agent = make_agent(AgentConfig(tasks=("A", "B"), num_actions=5, use_popart=True)).eval()
    agent.frame_mean.fill_(7.0)
    agent.frame_scale.fill_(0.25)
    return agent


def test_an_untrained_network_sees_the_games_as_the_agent_does():
    trained = make_trained()
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


def test_saved_networks_are_read_like_agents(tmp_path):
    trained = make_trained()
    path = run_files.intermediate_path(tmp_path / "models" / "Both", 100)
    state = {"agent": trained.config._asdict(), "model_state_dict": trained.state_dict()}
    checkpoint.save(path, {**state, "steps": 100, "optimizer_state_dict": {"large": 1}})
    (like,) = find_agents(tmp_path / "models")
    agents = save_untrained(like, tmp_path, count=2)
    assert [(a.name, a.kind, a.games) for a in agents] == [
        ("untrained0", "untrained", {"A", "B"}),
        ("untrained1", "untrained", {"A", "B"}),
    ]
    for seed, agent in enumerate(agents):
        (saved,) = agent.checkpoints.values()
        loaded = from_checkpoint(saved)
        assert torch.equal(loaded.fc.weight, make_untrained(trained, seed).fc.weight)
        assert checkpoint.load(saved)["steps"] == 0
        assert "optimizer_state_dict" not in checkpoint.load(saved)
