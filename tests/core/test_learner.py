import threading

import pytest
import torch

from torchbeast.core.learner import (
    Learner,
    LearnerClosed,
    OptimizerConfig,
    rollouts_at_once,
)
from torchbeast.core.losses import LossConfig, rollout_losses
from torchbeast.core.types import AgentOutput, EnvOutput
from torchbeast.models import AgentConfig, make_agent

CONFIG = AgentConfig(
    agent_type="atari", observation_shape=(2, 36, 36), num_actions=3, tasks=("A-v0", "B-v0")
)
T = 4


def make_rollout(seed, batch=1, task=0):
    generator = torch.Generator().manual_seed(seed)
    rows = T + 1
    draw = lambda *shape: torch.rand(*shape, generator=generator)  # noqa: E731
    done = draw(rows, batch) < 0.2
    env = EnvOutput(
        frame=(draw(rows, batch, 2, 36, 36) * 255).to(torch.uint8),
        reward=draw(rows, batch) * 2 - 1,
        done=done,
        task=torch.full((rows, batch), task, dtype=torch.int32),
        episode_step=torch.arange(rows, dtype=torch.int32).view(-1, 1).expand(rows, batch),
        episode_return=draw(rows, batch),
        truncated=torch.zeros(rows, batch, dtype=torch.bool),
        game_over=done,
        last_action=torch.randint(3, (rows, batch), generator=generator),
    )
    logits = draw(rows, batch, 3)
    action = torch.randint(3, (rows, batch, 1), generator=generator)
    return env, AgentOutput(action, logits, logits[..., :1], logits[..., :1])


def make_learner(batch_size, use_popart=False, total_steps=1000, **optimizer):
    torch.manual_seed(0)
    agent = make_agent(CONFIG._replace(use_popart=use_popart))
    steps = []
    learner = Learner(
        agent,
        LossConfig(),
        OptimizerConfig(total_steps=total_steps, **optimizer),
        batch_size,
        steps.append,
    )
    return learner, steps


def join(rollouts):
    env = EnvOutput(*(torch.cat(x, dim=1) for x in zip(*(r[0] for r in rollouts), strict=True)))
    actor = AgentOutput(*(torch.cat(x, dim=1) for x in zip(*(r[1] for r in rollouts), strict=True)))
    return env, actor


@pytest.mark.parametrize("use_popart", [False, True])
def test_rollout_by_rollout_equals_the_whole_batch(use_popart):
    rollouts = [make_rollout(i, task=i % 2) for i in range(4)]
    whole, _ = make_learner(4, use_popart)
    whole.learn(*join(rollouts), ())
    parts, steps = make_learner(4, use_popart)
    for rollout in rollouts:
        assert not steps
        parts.learn(*rollout, ())
    assert len(steps) == 1
    for (name, a), b in zip(
        whole.agent.state_dict().items(), parts.agent.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)
    assert parts.steps == whole.steps == 4 * T
    assert parts.task_steps == [2 * T, 2 * T]


def test_threads_learn_one_batch_together():
    learner, steps = make_learner(8)
    rollouts = [make_rollout(i) for i in range(24)]

    def work(mine):
        for rollout in mine:
            learner.learn(*rollout, ())

    threads = [threading.Thread(target=work, args=(rollouts[i::3],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [s.steps for s in steps] == [8 * T, 16 * T, 24 * T]
    reference, _ = make_learner(8)
    for i in range(3):
        reference.learn(*join(rollouts[8 * i : 8 * i + 8]), ())
    # The threads' rollouts come in another order: not the same batches, but the same counts.
    assert reference.steps == learner.steps


def test_one_failure_wakes_the_other_threads():
    learner, _ = make_learner(1)
    started, errors = threading.Event(), []
    forward = learner.agent.forward

    def slow_and_broken(*args, **kwargs):
        started.set()
        while not waiting.is_alive():
            pass
        raise ArithmeticError("no")

    learner.agent.forward = slow_and_broken

    def learn(seed):
        try:
            learner.learn(*make_rollout(seed), ())
        except Exception as error:
            errors.append(error)

    waiting = threading.Thread(target=learn, args=(1,))
    failing = threading.Thread(target=learn, args=(0,))
    failing.start()
    started.wait()
    waiting.start()  # The batch of one rollout is taken: it waits for its turn.
    for thread in (failing, waiting):
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert sorted(type(error).__name__ for error in errors) == ["ArithmeticError", "RuntimeError"]
    learner.agent.forward = forward
    with pytest.raises(RuntimeError, match="another learner thread failed"):
        learner.learn(*make_rollout(3), ())


def test_learning_rate_falls_linearly_to_the_last_step():
    learner, steps = make_learner(1, total_steps=4 * T, learning_rate=0.1)
    for i in range(4):
        learner.learn(*make_rollout(i), ())
    assert [s.learning_rate for s in steps] == pytest.approx([0.1, 0.075, 0.05, 0.025])
    with pytest.raises(LearnerClosed):
        learner.learn(*make_rollout(5), ())


def test_rmsprop_step_as_in_impala():
    learner, _ = make_learner(1, learning_rate=0.01, alpha=0.9, epsilon=0.1, grad_norm_clipping=1e9)
    before = learner.agent.policy.bias.detach().clone()
    env, actor = make_rollout(0)
    total = rollout_losses(learner.agent, env, actor, (), LossConfig()).total
    (gradient,) = torch.autograd.grad(total, [learner.agent.policy.bias])
    learner.learn(env, actor, ())
    expected = before - 0.01 * gradient / ((0.1 * gradient.square()).sqrt() + 0.1)
    torch.testing.assert_close(learner.agent.policy.bias.detach(), expected)


def test_gradients_are_clipped_by_norm():
    learner, steps = make_learner(1, learning_rate=1.0, epsilon=1e9, grad_norm_clipping=0.5)
    before = [p.detach().clone() for p in learner.agent.parameters()]
    learner.learn(*make_rollout(0), ())
    assert steps[0].grad_norm > 0.5
    # With this epsilon a step is the gradient over 1e9.
    moved = torch.cat(
        [(a - b).flatten() for a, b in zip(learner.agent.parameters(), before, strict=True)]
    )
    assert moved.norm().item() <= 0.51e-9 * 10  # Rounding of tiny differences.


def test_state_goes_round():
    first, _ = make_learner(1, use_popart=True)
    for i in range(3):
        first.learn(*make_rollout(i, task=1), ())
    second, _ = make_learner(1, use_popart=True)
    second.load_state_dict(first.state_dict())
    assert (second.steps, second.learner_steps) == (3 * T, 3)
    for learner in (first, second):
        learner.learn(*make_rollout(9), ())
    for a, b in zip(
        first.agent.state_dict().values(), second.agent.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("batch_size", "unroll_length", "threads", "rows", "expected"),
    [
        (4, 20, 1, 80, 4),
        (4, 20, 2, 80, 2),  # All threads have something to do.
        (8, 20, 1, 80, 4),
        (8, 80, 2, 80, 1),
        (8, 500, 1, 80, 1),  # A rollout is never cut.
        (6, 20, 1, 80, 3),  # Parts are equal.
        (2, 20, 4, 80, 1),
        (8, 80, 2, None, 8),
    ],
)
def test_a_thread_takes_about_as_many_rows_as_the_agent_likes(
    batch_size, unroll_length, threads, rows, expected
):
    assert rollouts_at_once(batch_size, unroll_length, threads, rows) == expected
