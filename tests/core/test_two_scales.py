"""What PopArt is for: two games whose rewards differ by a factor of a thousand."""

import torch

from torchbeast.core.learner import Learner
from torchbeast.core.types import AgentOutput, EnvOutput, LossConfig, OptimizerConfig
from torchbeast.models import Agent, AgentConfig

SCALES = torch.tensor([1.0, 1000.0])
ROWS = 21
UPDATES = 400


class Tiny(Agent):
    def __init__(self, config):
        super().__init__(config)
        self.fc = torch.nn.Linear(9, 32)
        self.build_heads(num_features=32, hidden_size=0, num_layers=1)

    def encode(self, frames):
        return torch.relu(self.fc(frames.flatten(1)))


def act(agent):
    """One rollout of both games, side by side.

    A picture shows one of four symbols and which game it is; naming the symbol is rewarded, in the
    second game by its place in reverse.
    """
    symbol = torch.randint(4, (ROWS, 2))
    frame = torch.zeros(ROWS, 2, 1, 3, 3, dtype=torch.uint8)
    flat = frame.view(ROWS, 2, 9)
    flat.scatter_(-1, (symbol + torch.tensor([0, 4])).unsqueeze(-1), 255)
    zeros = torch.zeros(ROWS, 2)
    task = torch.tensor([[0, 1]], dtype=torch.int32).expand(ROWS, 2)
    env = EnvOutput(frame, zeros, zeros > 0, task, zeros, zeros, zeros > 0, zeros > 0, zeros.long())
    with torch.no_grad():
        output, _ = agent(env)
    wanted = torch.stack([symbol[:, 0], 3 - symbol[:, 1]], dim=1)
    right = (output.action[..., 0] == wanted).float()
    # Row t holds the action chosen at t - 1 and its reward.
    shifted = AgentOutput(*(torch.roll(x, 1, dims=0) for x in output))
    env = env._replace(reward=torch.roll(right, 1, dims=0) * SCALES)
    return env, shifted, right.mean(dim=0)


def learn(use_popart):
    torch.manual_seed(0)
    agent = Tiny(
        AgentConfig(
            observation_shape=(1, 3, 3),
            num_actions=4,
            tasks=("small", "large"),
            use_popart=use_popart,
            beta=0.01,
        )
    )
    learner = Learner(
        agent,
        LossConfig(discounting=0.0, reward_clipping="none", entropy_cost=0.01),
        OptimizerConfig(learning_rate=0.003, total_steps=10**9),
        batch_size=2,
        on_step=lambda stats: None,
    )
    scores = []
    for _ in range(UPDATES):
        env, actor, score = act(agent)
        learner.learn(env, actor, ())
        scores.append(score)
    return torch.stack(scores[-50:]).mean(dim=0).tolist()


def test_with_popart_both_games_are_learned():
    small, large = learn(use_popart=True)
    assert small > 0.9
    assert large > 0.9


def test_with_plain_values_the_small_one_is_not():
    small, large = learn(use_popart=False)
    assert large > 0.7
    assert small < 0.45  # A quarter is chance.
