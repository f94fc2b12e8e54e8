"""Which action meets which reward, and what the ends of episodes do."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.core.rollouts import reference_vtrace
from torchbeast.core import vtrace
from torchbeast.core.losses import own_head, rollout_losses
from torchbeast.core.types import AgentOutput, EnvOutput, LossConfig
from torchbeast.models import Agent, AgentConfig

GAMMA = 0.5


class Table:
    """An agent that says what a table says: logits and values of each row."""

    def __init__(self, logits, values):
        self.logits = torch.tensor(logits, requires_grad=True)
        self.values = torch.tensor(values, requires_grad=True)
        self.baseline = SimpleNamespace()

    def __call__(self, env, state, sample):
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


@pytest.mark.parametrize(
    ("rewards", "done", "truncated", "vs"),
    [
        ([99.0, 1.0, 0.5], [], [], [3.25, 4.5]),  # v_1 = 0.5 + 0.5 * 8, v_0 = 1 + 0.5 * v_1
        ([99.0, 1.0, 0.75], [2], [], [1.375, 0.75]),  # A terminal step has no bootstrap.
        ([99.0, 1.0, 77.0], [2], [1], [1.25, 0.5]),  # Row 1 is the final one.
        ([99.0, 1.0, 77.0], [2], [2], [1.25, 0.5]),  # The step from row 1 failed.
        # After a failure an episode of one step is like any other.
        ([99.0, 1.0, 77.0], [1, 2], [1], [0.25, 77.0]),
    ],
)
def test_targets_of_an_on_policy_rollout(rewards, done, truncated, vs):
    agent = Table([[0.0, 0.0]] * 3, [0.25, 0.5, 8.0])
    env, actor = rollout(rewards, [1, 0, 1], done=done, truncated=truncated)
    result = losses(agent, env, actor, reward_clipping="none")
    assert result.vs.flatten().tolist() == vs
    result.total.backward()
    # Neither policy nor value learn from a transition into another episode.
    for step, is_step in enumerate(result.is_step.flatten().tolist()):
        assert is_step == (vs[step] != agent.values[step])
        assert (agent.values.grad[step] != 0) == is_step
        assert (agent.logits.grad[step].abs().sum() != 0) == is_step


def cut_into_episodes(env):
    """Each episode of ``[T + 1, B]`` as (rollout, first row, number of steps, is bootstrapped)."""
    last, batch = env.done.shape[0] - 1, env.done.shape[1]
    for b in range(batch):
        starts = [0, *(t for t in range(1, last + 1) if env.done[t, b])]
        for start, end in itertools.zip_longest(starts, starts[1:]):
            if end is None:
                yield b, start, last - start, True
            elif env.truncated[end - 1, b]:
                yield b, start, end - 1 - start, True
            else:
                yield b, start, end - start, False


def test_each_episode_learns_as_it_would_alone():
    generator = torch.Generator().manual_seed(0)
    rows, batch = 41, 6
    env, actor = random_rollout(generator, rows, batch, 1, 3)
    draw = torch.rand(2, rows, batch, 4, generator=generator, dtype=torch.float64)
    logits, v = draw[0, ..., :3], draw[1, ..., :1]
    agent = type("Fixed", (), {"baseline": None, "__call__": lambda *_, **__: (output, ())})()
    output = AgentOutput(None, logits, v, v)
    result = losses(agent, env, actor, reward_clipping="none")

    log_policy = torch.log_softmax(logits, -1).numpy()
    action = actor.action[1:, :, 0].numpy()
    log_taken = np.take_along_axis(log_policy[:-1], action[..., None], -1)[..., 0]
    behaviour = torch.log_softmax(actor.policy_logits, -1)[1:].numpy()
    rhos = np.exp(log_taken - np.take_along_axis(behaviour, action[..., None], -1)[..., 0])
    expected = np.zeros((3, rows - 1, batch))
    for b, start, num_steps, is_bootstrapped in cut_into_episodes(env):
        steps = slice(start, start + num_steps)
        values = v[start:, b, 0].numpy()
        vs, advantages = reference_vtrace(
            np.log(rhos[steps, b]),
            [GAMMA] * num_steps,
            env.reward[1:][steps, b].numpy(),
            values[:num_steps],
            values[num_steps] if is_bootstrapped else 0.0,
            1.0,
            1.0,
        )
        expected[:, steps, b] = np.ones(num_steps), vs, -log_taken[steps, b] * advantages
    is_step = expected[0] == 1
    assert 0 < np.count_nonzero(~is_step) < is_step.size / 2
    np.testing.assert_array_equal(result.is_step, is_step)
    np.testing.assert_allclose(result.vs.numpy()[is_step], expected[1][is_step], rtol=1e-12)
    np.testing.assert_allclose(result.pg_loss, expected[2], rtol=1e-12)
    error = 0.5 * np.square(expected[1] - v[:-1, :, 0].numpy())
    np.testing.assert_allclose(result.value_loss, error * is_step, rtol=1e-12)
    assert torch.equal(result.policy_entropy > 0, result.is_step)


def test_statistics_of_popart_leave_out_what_is_no_step():
    torch.manual_seed(0)
    agent = Tiny(
        AgentConfig(observation_shape=(2, 2, 2), num_actions=3, tasks=("A", "B"), use_popart=True)
    ).double()
    env, actor = random_rollout(torch.Generator().manual_seed(2), 9, 4, 2, 3)
    result = rollout_losses(agent, env, actor, (), LossConfig(reward_clipping="none"))
    counted = agent.baseline.sum_own_targets(
        *(x[result.is_step] for x in (result.vs, result.task, env.reward[1:]))
    )
    assert result.target_sums.number.sum() == result.is_step.sum() < 32
    torch.testing.assert_close(result.target_sums, counted)


def test_rewards_are_clipped_for_learning_only_if_asked():
    agent = Table([[0.0, 0.0]] * 2, [0.0, 0.0])
    env, actor = rollout([0.0, 50.0], [0, 0])
    assert losses(agent, env, actor).vs.item() == 1.0
    assert losses(agent, env, actor, reward_clipping="none").vs.item() == 50.0
    assert env.reward[1].item() == 50.0


class Tiny(Agent):
    """An agent small enough for finite differences."""

    def __init__(self, config):
        super().__init__(config)
        self.fc = torch.nn.Linear(8, 3)
        self.compute_dtype = torch.float64
        self.build_heads(num_features=3, hidden_size=3, num_layers=1)

    def encode(self, frames):
        return torch.tanh(self.fc(frames.flatten(1)))


def random_rollout(generator, rows, batch, num_tasks, num_actions):
    def draw(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    done = draw(rows, batch) < 0.3
    # What precedes a new episode is its final row, where it is not its first.
    truncated = done.roll(-1, 0) & ~done & (draw(rows, batch) < 0.5)
    env = EnvOutput(
        frame=(draw(rows, batch, 2, 2, 2) * 255).to(torch.uint8),
        reward=draw(rows, batch) * 4 - 2,
        done=done,
        task=torch.randint(num_tasks, (1, batch), generator=generator).expand(rows, batch),
        episode_step=None,
        episode_return=None,
        truncated=truncated,
        game_over=done,
        last_action=None,
    )
    action = torch.randint(num_actions, (rows, batch, 1), generator=generator)
    return env, AgentOutput(action, draw(rows, batch, num_actions), None, None)


@pytest.mark.parametrize("beta_per", ["target", "batch"])
def test_with_popart_errors_and_advantages_are_divided_by_their_games_sigma(beta_per):
    torch.manual_seed(0)
    games = {"tasks": ("A", "B"), "use_popart": True, "beta": 0.1, "beta_per": beta_per}
    agent = Tiny(AgentConfig(observation_shape=(2, 2, 2), num_actions=3, **games)).double()
    agent.baseline.set_statistics([(1.0, 2.0), (-5.0, 0.5)])
    config = LossConfig(reward_clipping="none", entropy_cost=0.1)
    env, actor = random_rollout(torch.Generator().manual_seed(2), 9, 4, 2, 3)
    result = rollout_losses(agent, env, actor, (), config)

    output = agent(env, sample=False)[0]
    v = own_head(output.baseline, env.task.long()).detach()
    logits, action = output.policy_logits[:-1], actor.action[1:].squeeze(-1)
    returns = torch.where(result.is_step, env.reward[1:], v[:-1])
    advantages = vtrace.from_logits(
        actor.policy_logits[1:], logits, action, 0.99 * ~env.done[1:], returns, v[:-1], v[-1]
    ).pg_advantages
    layer = agent.baseline
    moments = layer.moments if beta_per == "batch" else layer.moved(result.target_sums)
    sigma = moments.sigma[result.task]
    error = 0.5 * ((result.vs - v[:-1]) / sigma).square() * result.is_step
    torch.testing.assert_close(result.value_loss, error)
    log_probs = vtrace.action_log_probs(logits, action)
    expected = -log_probs * advantages / sigma * result.is_step
    # V-trace is in float32.
    torch.testing.assert_close(result.pg_loss, expected, rtol=1e-5, atol=1e-5)
    total = expected + 0.5 * error - 0.1 * result.policy_entropy
    torch.testing.assert_close(result.total, total.sum(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("use_lstm", [False, True])
@pytest.mark.parametrize("use_popart", [False, True])
def test_gradients_equal_finite_differences(monkeypatch, use_popart, use_lstm):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    agent = Tiny(
        AgentConfig(
            observation_shape=(2, 2, 2),
            num_actions=3,
            tasks=("A", "B"),
            use_popart=use_popart,
            use_lstm=use_lstm,
        )
    ).double()
    if use_popart:
        agent.baseline.mu.copy_(torch.tensor([1.0, -5.0]))
        agent.baseline.sigma.copy_(torch.tensor([2.0, 0.5]))
    env, actor = random_rollout(generator, 6, 4, 2, 3)
    state = tuple(torch.rand(1, 4, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    config = LossConfig(entropy_cost=0.1, reward_clipping="none")

    def total():
        return rollout_losses(agent, env, actor, state if use_lstm else (), config).total

    parameters = list(agent.parameters())
    gradients = torch.autograd.grad(total(), parameters)
    # Targets and advantages are constants of the loss: hold them while parameters move.
    frozen = []
    compute = vtrace.from_logits
    monkeypatch.setattr(
        vtrace, "from_logits", lambda *a, **k: frozen.append(compute(*a, **k)) or frozen[0]
    )
    total()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat, expected = parameter.data.view(-1), gradient.reshape(-1)
        for i in range(0, flat.numel(), max(1, flat.numel() // 6)):
            value, step = flat[i].item(), 1e-6
            flat[i] = value + step
            above = total().item()
            flat[i] = value - step
            below = total().item()
            flat[i] = value
            assert (above - below) / (2 * step) == pytest.approx(
                expected[i].item(), rel=1e-4, abs=1e-6
            )


def test_each_task_has_its_own_value_head():
    heads = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
    task = torch.ones(2, 1, dtype=torch.int64)
    for num_heads, expected in ((1, [1, 3]), (2, [2, 4])):
        assert own_head(heads[..., :num_heads], task).flatten().tolist() == expected
