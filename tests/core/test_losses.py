"""Which action meets which reward, and what the ends of episodes do."""

from types import SimpleNamespace

import torch

from torchbeast.core import vtrace
from torchbeast.core.losses import LossConfig, rollout_losses
from torchbeast.core.types import AgentOutput, EnvOutput

GAMMA = 0.5


class Table:
    """An agent that says what a table says: logits and values of each row."""

    def __init__(self, logits, values):
        self.logits = torch.tensor(logits, requires_grad=True)
        self.values = torch.tensor(values, requires_grad=True)
        self.baseline = SimpleNamespace()

    def __call__(self, env, state):
        baseline = self.values.view(-1, 1, 1)
        return AgentOutput(
            None, self.logits.view(len(self.values), 1, -1), baseline, baseline
        ), state


def rollout(rewards, actions, done=(), truncated=(), logits=None):
    """Rows 0..T; the first row's values must not matter."""
    rows = len(rewards)

    def flags(where):
        return torch.tensor([[t in where] for t in range(rows)])

    env = EnvOutput(
        frame=None,
        reward=torch.tensor(rewards).view(rows, 1),
        done=flags(done),
        task=torch.zeros(rows, 1, dtype=torch.int32),
        episode_step=None,
        episode_return=None,
        truncated=flags(truncated),
        game_over=flags(done),
        last_action=None,
    )
    behaviour = torch.zeros(rows, 1, 2) if logits is None else torch.tensor(logits).view(rows, 1, 2)
    actor = AgentOutput(torch.tensor(actions).view(rows, 1, 1), behaviour, None, None)
    return env, actor


def losses(agent, env, actor, **config):
    options = {"discounting": GAMMA, "baseline_cost": 1.0, "entropy_cost": 0.0, **config}
    return rollout_losses(agent, env, actor, (), LossConfig(**options))


def test_targets_of_an_on_policy_rollout():
    agent = Table([[0.0, 0.0]] * 3, [0.25, 0.5, 8.0])
    env, actor = rollout([99.0, 1.0, 0.5], [1, 0, 1])
    result = losses(agent, env, actor)
    # v_1 = 0.5 + 0.5 * 8, v_0 = 1 + 0.5 * v_1
    assert result.vs.flatten().tolist() == [3.25, 4.5]


def test_terminal_step_has_no_bootstrap():
    agent = Table([[0.0, 0.0]] * 3, [0.25, 0.5, 8.0])
    env, actor = rollout([99.0, 1.0, 0.5], [1, 0, 1], done=[2])
    assert losses(agent, env, actor).vs.flatten().tolist() == [1.25, 0.5]


def test_truncated_step_keeps_its_value_and_is_bootstrapped_from():
    agent = Table([[0.0, 0.0]] * 3, [0.25, 0.5, 8.0])
    env, actor = rollout([99.0, 1.0, 77.0], [1, 0, 1], done=[2], truncated=[2])
    result = losses(agent, env, actor, clip_rewards=False)
    assert result.vs.flatten().tolist() == [1.25, 0.5]
    # Neither policy nor value learn from it.
    result.total.backward()
    assert agent.values.grad[1] == 0
    assert agent.logits.grad[1].abs().sum() == 0


def test_actions_meet_the_logits_of_the_row_before():
    behaviour = [[9.0, 9.0], [0.5, -0.5], [-1.0, 2.0]]
    target = [[0.3, -0.7], [1.1, 0.2], [55.0, 66.0]]
    agent = Table(target, [0.0, 0.0, 0.0])
    env, actor = rollout([99.0, 0.25, -0.5], [1, 0, 1], logits=behaviour)
    result = losses(agent, env, actor)
    expected = vtrace.from_logits(
        torch.tensor(behaviour)[1:].view(2, 1, 2),
        torch.tensor(target)[:2].view(2, 1, 2),
        torch.tensor([[0], [1]]),
        torch.full((2, 1), GAMMA),
        torch.tensor([[0.25], [-0.5]]),
        torch.zeros(2, 1),
        torch.zeros(1),
    )
    torch.testing.assert_close(result.vs, expected.vs)
    log_probs = torch.log_softmax(torch.tensor(target), -1)[[0, 1], [0, 1]]
    pg = -(log_probs * expected.pg_advantages.flatten()).sum()
    torch.testing.assert_close(result.policy_gradient, pg)


def test_rewards_are_clipped_for_learning_only_if_asked():
    agent = Table([[0.0, 0.0]] * 2, [0.0, 0.0])
    env, actor = rollout([0.0, 50.0], [0, 0])
    assert losses(agent, env, actor).vs.item() == 1.0
    assert losses(agent, env, actor, clip_rewards=False).vs.item() == 50.0
    assert env.reward[1].item() == 50.0


def test_no_gradient_through_targets():
    agent = Table([[0.0, 0.0]] * 3, [0.25, 0.5, 8.0])
    env, actor = rollout([0.0, 1.0, 0.5], [1, 0, 1])
    losses(agent, env, actor).total.backward()
    assert agent.values.grad[2] == 0  # The bootstrap.
    torch.testing.assert_close(agent.values.grad[:2], torch.tensor([0.25 - 3.25, 0.5 - 4.5]))
