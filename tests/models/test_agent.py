import pytest
import torch

from tests.models.inputs import SIX_TASKS, make_inputs
from torchbeast.core.types import EnvOutput, ShapeError, UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.models.agent import FUSED_STEPS


@pytest.mark.parametrize("agent_type", ["atari", "aaa"])
def test_an_agent_that_sees_its_last_action_does_not_go_without(agent_type):
    agent = make_agent(AgentConfig(agent_type=agent_type))
    inputs = make_inputs(agent.config)._asdict()
    del inputs["last_action"]
    with pytest.raises(ValueError, match="needs last_action"):
        agent(inputs, agent.initial_state(3))


@pytest.mark.parametrize(
    ("agent_type", "use_lstm", "use_popart", "value_heads", "heads"),
    [
        ("resnet", False, False, "one", 1),
        ("atari", True, False, "game", 6),
        ("resnet", True, True, "one", 6),
    ],
)
def test_outputs_have_a_column_for_each_action_and_value_head(
    agent_type, use_lstm, use_popart, value_heads, heads
):
    config = AgentConfig(
        agent_type=agent_type,
        observation_shape=(3, 52, 60),
        num_actions=5,
        tasks=SIX_TASKS,
        use_lstm=use_lstm,
        use_popart=use_popart,
        value_heads=value_heads,
    )
    agent = make_agent(config)
    output, state = agent(make_inputs(config), agent.initial_state(3))
    assert output.action.shape == (5, 3, 1)
    assert output.action.dtype == torch.int64
    assert output.policy_logits.shape == (5, 3, 5)
    assert output.baseline.shape == output.normalized_baseline.shape == (5, 3, heads)
    assert len(state) == (2 if use_lstm else 0)


@pytest.mark.parametrize("agent_type", ["resnet", "atari", "aaa"])
def test_unroll_with_resets_equals_step_by_step(agent_type):
    config = AgentConfig(agent_type=agent_type, observation_shape=(2, 36, 36), use_lstm=True)
    agent = make_agent(config).eval()
    if agent_type == "aaa":
        torch.nn.init.normal_(agent.memory.peepholes)
    steps = 12 + FUSED_STEPS
    inputs = make_inputs(config, steps=steps)
    inputs.done[12:] = False  # A long stretch after short ones.
    assert inputs.done.any()
    assert not inputs.done.all()
    together, final = agent(inputs, agent.initial_state(3))
    state = agent.initial_state(3)
    for t in range(steps):
        row = EnvOutput(*(None if x is None else x[t : t + 1] for x in inputs))
        if row.done.any():  # A start forgets everything before it.
            b = int(row.done.nonzero()[0, 1])
            state = tuple(s.clone() for s in state)
            for s in state:
                s[:, b] = 77.0
        output, state = agent(row, state)
        torch.testing.assert_close(output.policy_logits[0], together.policy_logits[t])
        torch.testing.assert_close(output.baseline[0], together.baseline[t])
    for mine, theirs in zip(state, final, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_training_mode_samples_and_evaluation_mode_takes_the_likeliest():
    config = AgentConfig(agent_type="atari", observation_shape=(2, 36, 36), num_actions=3)
    agent = make_agent(config)
    with torch.no_grad():
        agent.policy.weight.zero_()
        agent.policy.bias.copy_(torch.tensor([0.5, 0.3, 0.2]).log())
    inputs = make_inputs(config, steps=20, batch=40)
    counts = torch.bincount(agent(inputs)[0].action.flatten()) / 800
    torch.testing.assert_close(counts, torch.tensor([0.5, 0.3, 0.2]), atol=0.08, rtol=0)
    assert agent.eval()(inputs)[0].action.eq(0).all()


def test_the_gates_of_a_new_lstm_are_fed_as_much_as_comes_in():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", use_lstm=True))
    agent.scale_initial_weights()
    seen = torch.randn(64, agent.core.input_size)
    # With PyTorch's weights little more than half.
    for layer in range(agent.core.num_layers):
        fed = seen @ getattr(agent.core, f"weight_ih_l{layer}").T
        assert 0.9 < fed.std() / seen.std() < 1.1


def test_each_games_frames_are_centred_by_its_own_statistics():
    config = AgentConfig(agent_type="atari", observation_shape=(2, 36, 36), tasks=SIX_TASKS)
    agent = make_agent(config)
    task = torch.arange(15, dtype=torch.int32).view(5, 3) % 6
    inputs = make_inputs(config)._replace(task=task)
    frames = inputs.frame.flatten(0, 1)
    seen = []
    agent.encode = lambda x: seen.append(x) or torch.zeros(len(x), 512)
    agent(inputs)
    torch.testing.assert_close(seen[0], frames / 255)
    mean, std = torch.rand(6, 2, 36, 36) * 255, torch.arange(6) + 20.0
    agent.set_frame_statistics(mean, std)
    agent(inputs)
    for row, frame in enumerate(frames):
        game = row % 6
        torch.testing.assert_close(seen[1][row], (frame - mean[game]) / std[game])
    assert seen[1].is_contiguous(memory_format=torch.channels_last)


def test_frames_that_hardly_change_are_not_blown_up():
    agent = make_agent(AgentConfig(agent_type="atari", observation_shape=(2, 36, 36)))
    agent.set_frame_statistics(torch.zeros(1, 2, 36, 36), torch.tensor([0.1]))
    assert 255 * agent.frame_scale < 16


def test_bfloat16_is_close_to_float32():
    config = AgentConfig(observation_shape=(4, 84, 84))
    agent = make_agent(config).eval()
    inputs = make_inputs(config)
    exact, _ = agent(inputs)
    agent.compute_dtype = torch.bfloat16
    fast, _ = agent(inputs)
    assert fast.policy_logits.dtype == torch.float32
    torch.testing.assert_close(fast.policy_logits, exact.policy_logits, atol=0.02, rtol=0.05)
    torch.testing.assert_close(fast.baseline, exact.baseline, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("agent_type", ["resnet", "atari"])
def test_an_inference_copy_gives_the_same_outputs(agent_type):
    config = AgentConfig(agent_type=agent_type, use_lstm=True)
    agent = make_agent(config)
    agent.compute_dtype = torch.bfloat16
    inputs, state = make_inputs(config), agent.initial_state(3)
    expected, _ = agent(inputs, state, sample=False)
    copy = agent.inference_copy()
    assert copy.get_parameter("fc.weight").dtype == torch.bfloat16
    assert copy.policy.weight.dtype == torch.float32
    output, _ = copy(inputs, state, sample=False)
    torch.testing.assert_close(output.policy_logits, expected.policy_logits.detach())
    assert not any(p.requires_grad for p in copy.parameters())


def test_an_agent_of_several_games_must_be_told_which_one_it_sees():
    config = AgentConfig(agent_type="atari", observation_shape=(2, 36, 36), tasks=SIX_TASKS)
    fields = make_inputs(config)._asdict()
    del fields["task"]
    with pytest.raises(ValueError, match="plays 6 games: the inputs need 'task'"):
        make_agent(config)(fields)
    make_agent(config._replace(tasks=("A",)))(fields)  # With one game it is clear.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tasks": "Pong"}, "AgentConfig: tasks is 'Pong'"),
        ({"value_heads": "games"}, "AgentConfig: value_heads is 'games'"),
        ({"agent_type": "deep"}, "There is no agent type deep: choose resnet, atari, aaa or"),
    ],
)
def test_wrong_configurations_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        make_agent(AgentConfig(**wrong))


@pytest.mark.parametrize("agent_type", ["atari", "aaa"])
def test_other_frames_and_a_missing_memory_are_refused(agent_type):
    config = AgentConfig(agent_type=agent_type, observation_shape=(2, 36, 36), use_lstm=True)
    agent, inputs = make_agent(config), make_inputs(config)
    with pytest.raises(ShapeError, match=r"give it agent.initial_state\(B\)"):
        agent(inputs)
    for frame in (inputs.frame[0], inputs.frame[:, :, :1]):
        with pytest.raises(ShapeError, match=r"frame must be \[T, B, 2, 36, 36\], got"):
            agent(inputs._replace(frame=frame), agent.initial_state(3))


@pytest.mark.parametrize("agent_type", ["atari", "resnet", "aaa"])
def test_memory_is_reset_where_a_life_or_a_game_begins(agent_type):
    config = AgentConfig(agent_type=agent_type, observation_shape=(2, 36, 36), use_lstm=True)
    torch.manual_seed(0)
    lives = make_agent(config).eval()
    games = make_agent(config._replace(lstm_reset="game")).eval()
    games.load_state_dict(lives.state_dict())
    inputs = make_inputs(config)
    never = torch.zeros_like(inputs.done)
    life_lost = never.clone()
    life_lost[2] = True
    state = tuple(torch.randn_like(part) for part in lives.initial_state(3))

    def run(agent, done, game_over, episode_step=None):
        fields = inputs._replace(
            done=done, game_over=game_over, episode_step=episode_step
        )._asdict()
        return agent(fields, state)[0].policy_logits

    whole = run(lives, never, never)
    after_reset = run(lives, life_lost, life_lost)
    assert not torch.equal(whole[2], after_reset[2])
    torch.testing.assert_close(run(games, life_lost, never), whole)
    torch.testing.assert_close(run(games, life_lost, life_lost), after_reset)
    torch.testing.assert_close(run(lives, life_lost, never), after_reset)
    # A new environment in the place of one that failed: no game was over.
    steps = torch.full(never.shape, 9)
    torch.testing.assert_close(run(games, life_lost, never, steps), whole)
    torch.testing.assert_close(run(games, life_lost, never, steps * ~life_lost), after_reset)
    # Without knowing of games, every episode counts as one.
    torch.testing.assert_close(run(games, life_lost, None), after_reset)


@pytest.mark.parametrize("agent_type", ["resnet", "atari", "aaa"])
def test_initial_weights_begin_uniform_and_let_small_things_through(agent_type):
    torch.manual_seed(0)
    config = AgentConfig(agent_type=agent_type)
    agent = make_agent(config)
    agent.requires_grad_(False)
    frames = torch.full((2, 4, 84, 84), -0.3)
    frames[1, :, 40:42, 40:42] = 3.0  # A ball.

    def change():
        features = agent.encode(frames)
        return float((features[1] - features[0]).norm() / features[0].numel() ** 0.5)

    before = change()
    agent.scale_initial_weights()
    assert change() > 4 * before
    output, _ = agent(make_inputs(config), agent.initial_state(3))
    assert torch.softmax(output.policy_logits, -1).sub(1 / 6).abs().max() < 0.05
