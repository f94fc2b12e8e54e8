import copy
import threading

import pytest
import torch

from tests.core.rollouts import CONFIG, T, make_rollout
from tests.threads import start
from torchbeast.core.batch_gate import LearnerClosed
from torchbeast.core.learner import MAX_SKIPPED_IN_A_ROW, Learner, rollouts_at_once
from torchbeast.core.losses import rollout_losses
from torchbeast.core.types import AgentOutput, EnvOutput, LossConfig, OptimizerConfig, RunError
from torchbeast.models import AtariNet, make_agent


def make_learner(
    batch_size, use_popart=False, beta_per="target", total_steps=1000, loss=None, **optimizer
):
    torch.manual_seed(0)
    agent = make_agent(CONFIG._replace(use_popart=use_popart, beta_per=beta_per))
    steps = []
    optimizer = OptimizerConfig(total_steps=total_steps, **optimizer)
    return Learner(agent, loss or LossConfig(), optimizer, batch_size, steps.append), steps


def join(rollouts):
    env = EnvOutput(*(torch.cat(x, dim=1) for x in zip(*(r[0] for r in rollouts), strict=True)))
    actor = AgentOutput(*(torch.cat(x, dim=1) for x in zip(*(r[1] for r in rollouts), strict=True)))
    return env, actor


def learn_in_parts(parts, batch_size, **config):
    """A learner after one batch of rollouts, given part by part; and its only step."""
    learner, steps = make_learner(batch_size, **config)
    for part in parts:
        assert not steps
        learner.learn(*join(part), ())
    (step,) = steps
    return learner, step


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({}, [[0], [1], [2], [3]]),
        ({"use_popart": True, "beta_per": "batch"}, [[0], [1], [2], [3]]),
        # Statistics that a part of the batch is normalised by contain that part's targets.
        ({"use_popart": True}, [[0, 2], [1, 3]]),
    ],
)
def test_parts_equal_the_whole_batch(config, parts):
    rollouts = [make_rollout(i, task=i % 2) for i in range(4)]
    whole, _ = learn_in_parts([rollouts], 4, **config)
    in_parts, _ = learn_in_parts([[rollouts[i] for i in part] for part in parts], 4, **config)
    for (name, a), b in zip(
        whole.agent.state_dict().items(), in_parts.agent.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)
    assert in_parts.steps == whole.steps == 4 * T
    assert in_parts.task_steps == [2 * T, 2 * T]


def test_the_first_reward_of_a_game_makes_no_large_gradient_in_parts_without_it():
    rollouts = [make_rollout(i, task=0) for i in range(4)]
    rollouts = [(env._replace(reward=0 * env.reward), actor) for env, actor in rollouts]
    rollouts[0][0].reward[2] = 2000.0
    loss = LossConfig(reward_clipping="none")
    norms = [
        learn_in_parts(parts, 4, use_popart=True, loss=loss)[1].grad_norm
        for parts in ([rollouts], [[rollout] for rollout in rollouts])
    ]
    assert norms[1] < 1.5 * norms[0]


@pytest.mark.parametrize("beta_per", ["target", "batch"])
def test_a_step_with_popart_has_its_published_order(beta_per):
    """Statistics, then head, then the gradient; in 2019 the gradient was first."""
    env, actor = make_rollout(0)
    env = env._replace(reward=env.reward * 1000)
    loss = LossConfig(reward_clipping="none", entropy_cost=0.0)
    learner, steps = make_learner(
        1, use_popart=True, beta_per=beta_per, loss=loss, learning_rate=0.1, grad_norm_clipping=1e9
    )
    reference = copy.deepcopy(learner.agent)
    learner.learn(env, actor, ())

    popart = reference.baseline
    moved = popart.moved(rollout_losses(reference, env, actor, (), loss).target_sums)
    if beta_per == "target":
        popart.adopt(moved)
        popart.beta = 0.0  # The loss is normalised by statistics that do not move any more.
    total = rollout_losses(reference, env, actor, (), loss).total
    gradients = torch.autograd.grad(total, list(reference.parameters()))
    norm = torch.cat([g.flatten().double() for g in gradients]).norm()
    assert steps[0].grad_norm == pytest.approx(norm.item(), rel=1e-4)
    config = OptimizerConfig()
    with torch.no_grad():
        for parameter, gradient in zip(reference.parameters(), gradients, strict=True):
            scale = ((1 - config.alpha) * gradient.square()).sqrt() + config.epsilon
            parameter -= 0.1 * gradient / scale
    if beta_per == "batch":
        popart.adopt(moved)
    expected = reference.state_dict()
    for name, found in learner.agent.state_dict().items():
        torch.testing.assert_close(found, expected[name], rtol=1e-3, atol=1e-4, msg=name)


class Odd(AtariNet):
    """Has two parameters with one gradient, one whose gradient is a number, and one without use."""

    def __init__(self, config):
        super().__init__(config)
        self.a, self.b = (torch.nn.Parameter(torch.zeros(512)) for _ in range(2))
        self.w, self.unused = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))

    def encode(self, x):
        return torch.tanh(super().encode(x) + (self.a + self.b) + self.w.sum())


def test_parts_of_a_batch_add_up_whatever_gradients_a_custom_agent_has():
    agents = []
    for parts in ([[0, 1, 2, 3]], [[0], [1], [2], [3]]):
        torch.manual_seed(0)
        agent = Odd(CONFIG)
        learner = Learner(agent, LossConfig(), OptimizerConfig(), 4, lambda _: None)
        for part in parts:
            learner.learn(*join([make_rollout(seed) for seed in part]), ())
        agents.append(agent)
    whole, in_parts = agents
    assert whole.a.any()
    assert not whole.unused.any()
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(in_parts.state_dict()[name], value, msg=name)


def test_threads_learn_one_batch_together():
    learner, steps = make_learner(8)
    batches, serial = threading.Barrier(4, timeout=60), make_learner(8)[0]

    def work(index):
        for batch in range(3):
            for seed in range(8 * batch + index, 8 * batch + 8, 4):
                learner.learn(*make_rollout(seed), ())
            batches.wait()

    for thread, _ in [start(work, index) for index in range(4)]:
        thread.join()
    assert [s.steps for s in steps] == [8 * T, 16 * T, 24 * T]
    for seed in range(24):
        serial.learn(*make_rollout(seed), ())
    for a, b in zip(learner.agent.parameters(), serial.agent.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_state_dict_does_not_change_while_the_learner_learns():
    learner, _ = make_learner(1, use_popart=True)
    learner.learn(*make_rollout(0), ())
    state = learner.state_dict()
    before = copy.deepcopy(state)
    learner.learn(*make_rollout(1), ())
    for name in ("model_state_dict", "optimizer_state_dict"):
        torch.testing.assert_close(state[name], before[name], rtol=0, atol=0)


def test_learning_rate_falls_linearly_to_the_last_step():
    learner, steps = make_learner(1, total_steps=4 * T, learning_rate=0.1)
    for i in range(4):
        learner.learn(*make_rollout(i), ())
    assert [s.learning_rate for s in steps] == pytest.approx([0.1, 0.075, 0.05, 0.025])
    with pytest.raises(LearnerClosed):
        learner.learn(*make_rollout(5), ())
    resumed, _ = make_learner(1, total_steps=2 * T)
    resumed.load_state_dict(learner.state_dict())
    with pytest.raises(LearnerClosed):
        resumed.learn(*make_rollout(5), ())


def test_gradients_are_clipped_by_norm():
    learner, steps = make_learner(1, learning_rate=1.0, epsilon=1e3, grad_norm_clipping=0.5)
    before = [p.detach().clone() for p in learner.agent.parameters()]
    learner.learn(*make_rollout(0), ())
    assert steps[0].grad_norm > 0.5
    # With this epsilon a step is the gradient over 1e3.
    moved = torch.cat(
        [(a - b).flatten() for a, b in zip(learner.agent.parameters(), before, strict=True)]
    )
    assert moved.norm().item() == pytest.approx(0.5e-3, rel=0.01)


def test_a_restored_learner_learns_the_same():
    first, _ = make_learner(1, use_popart=True)
    for i in range(3):
        first.learn(*make_rollout(i, task=1), ())
    second, _ = make_learner(1, use_popart=True)
    second.load_state_dict(first.state_dict())
    assert (second.steps, second.learner_steps) == (3 * T, 3)
    for learner in (first, second):
        learner.learn(*make_rollout(9), ())
    expected = second.agent.state_dict()
    assert all(torch.equal(x, expected[name]) for name, x in first.agent.state_dict().items())


@pytest.mark.parametrize(
    ("batch_size", "unroll_length", "threads", "rows", "expected"),
    [
        (4, 20, 1, 80, 4),
        (4, 20, 2, 80, 2),  # All threads have something to do.
        (8, 500, 1, 80, 1),  # A rollout is never cut.
        (6, 20, 1, 80, 3),  # Parts are equal.
        (8, 80, 2, None, 8),
    ],
)
def test_a_thread_takes_about_as_many_rows_as_the_agent_likes(
    batch_size, unroll_length, threads, rows, expected
):
    assert rollouts_at_once(batch_size, unroll_length, threads, rows) == expected


@pytest.mark.parametrize(("use_popart", "reward"), [(False, float("nan")), (True, 3e38)])
def test_an_update_that_is_not_finite_changes_nothing(use_popart, reward):
    learner, steps = make_learner(
        1, use_popart=use_popart, loss=LossConfig(reward_clipping="none", baseline_cost=1e5)
    )
    learner.learn(*make_rollout(0, task=1), ())
    before = copy.deepcopy(learner.state_dict())
    env, actor = make_rollout(1, task=1)
    env.reward[2] = reward
    learner.learn(env, actor, ())
    after = learner.state_dict()
    for name in ("model_state_dict", "optimizer_state_dict"):
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=0)
    assert steps[0].fault is None
    assert steps[1].fault is not None
    assert [step.skipped_updates for step in steps] == [0, 1]
    # The steps were taken, and count.
    assert after["steps"] == after["task_steps"][1] == 2 * T

    learner.learn(*make_rollout(2, task=0), ())
    assert steps[2].fault is None
    resumed, _ = make_learner(1, use_popart=use_popart)
    resumed.load_state_dict(learner.state_dict())
    resumed.learn(*make_rollout(1), ())
    assert resumed.state_dict()["skipped_updates"] == 1


def test_a_run_diverges_by_skipped_updates_in_a_row():
    learner, steps = make_learner(1)
    good, bad = make_rollout(0), make_rollout(1)
    bad[0].reward[:] = float("nan")
    for rollout in [*[bad] * (MAX_SKIPPED_IN_A_ROW - 1), good] * 2:
        learner.learn(*rollout, ())
    assert [step.fault is None for step in steps].count(True) == 2
    for _ in range(MAX_SKIPPED_IN_A_ROW - 1):
        learner.learn(*bad, ())
    assert not learner.is_diverged
    with pytest.raises(RunError, match=r"diverged: 10 updates in a row .*\(loss nan, norm"):
        learner.learn(*bad, ())
    assert learner.is_diverged
