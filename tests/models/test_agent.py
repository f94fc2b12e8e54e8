import json

import pytest
import torch
from torch import nn

from tests.conftest import ROOT
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.models import AgentConfig, from_checkpoint, make_agent
from torchbeast.models.agent import FUSED_STEPS
from torchbeast.records import checkpoint

SIX_TASKS = ("A", "B", "C", "D", "E", "F")


def make_inputs(config, steps=5, batch=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    done = torch.rand(steps, batch, generator=generator) < 0.3
    frame = torch.randint(256, (steps, batch, *config.observation_shape), generator=generator)
    return EnvOutput(
        frame=frame.to(torch.uint8),
        reward=torch.randn(steps, batch, generator=generator) * 3,
        done=done,
        task=torch.zeros(steps, batch, dtype=torch.int32),
        episode_step=None,
        episode_return=None,
        truncated=None,
        game_over=None,
        last_action=torch.randint(config.num_actions, (steps, batch), generator=generator),
    )


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


class Net2019(nn.Module):
    """The network of 2019, written after the names in its checkpoints and nothing else here."""

    def __init__(self, num_actions, num_tasks, use_lstm, use_popart, clips):
        super().__init__()
        self.clips = clips  # The reward that it is fed.
        self.feat_convs, self.resnet1, self.resnet2 = (nn.ModuleList() for _ in range(3))
        inputs = 4
        for channels in (16, 32, 32):
            self.feat_convs.append(
                nn.Sequential(nn.Conv2d(inputs, channels, 3, 1, 1), nn.MaxPool2d(3, 2, 1))
            )
            for blocks in (self.resnet1, self.resnet2):
                blocks.append(
                    nn.Sequential(
                        nn.ReLU(),
                        nn.Conv2d(channels, channels, 3, 1, 1),
                        nn.ReLU(),
                        nn.Conv2d(channels, channels, 3, 1, 1),
                    )
                )
            inputs = channels
        self.fc = nn.Linear(3872, 256)
        if use_lstm:
            self.core = nn.LSTM(257, 256, 1)
        size = 256 if use_lstm else 257
        self.policy = nn.Linear(size, num_actions)
        self.baseline = nn.Linear(size, num_tasks if use_popart else 1)
        if use_popart:
            self.baseline.register_buffer("mu", torch.rand(num_tasks) * 100)
            self.baseline.register_buffer("sigma", torch.rand(num_tasks) * 10 + 1)

    def forward(self, inputs):
        steps, batch = inputs.done.shape
        x = inputs.frame.flatten(0, 1).float() / 255.0
        for conv, first, second in zip(self.feat_convs, self.resnet1, self.resnet2, strict=True):
            x = conv(x)
            x = x + first(x)
            x = x + second(x)
        x = torch.relu(self.fc(torch.relu(x).reshape(steps * batch, -1)))
        reward = inputs.reward.clamp(-1, 1) if self.clips else inputs.reward
        x = torch.cat([x, reward.reshape(steps * batch, 1)], dim=1)
        if hasattr(self, "core"):
            state, outputs = (torch.zeros(1, batch, 256),) * 2, []
            for row, ended in zip(x.view(steps, batch, -1), inputs.done, strict=True):
                state = tuple((~ended).float().view(1, -1, 1) * s for s in state)
                output, state = self.core(row.unsqueeze(0), state)
                outputs.append(output[0])
            x = torch.cat(outputs)
        baseline = self.baseline(x)
        if hasattr(self.baseline, "mu"):
            baseline = baseline * self.baseline.sigma + self.baseline.mu
        return self.policy(x).view(steps, batch, -1), baseline.view(steps, batch, -1)


class ShallowNet2019(nn.Module):
    """MonoBeast's network of 2019, written after the names in its checkpoints."""

    def __init__(self, num_actions, use_lstm):
        super().__init__()
        self.num_actions = num_actions
        self.conv1 = nn.Conv2d(4, 32, 8, 4)
        self.conv2 = nn.Conv2d(32, 64, 4, 2)
        self.conv3 = nn.Conv2d(64, 64, 3, 1)
        self.fc = nn.Linear(3136, 512)
        size = 512 + 1 + num_actions
        if use_lstm:
            self.core = nn.LSTM(size, size, 2)
        self.policy = nn.Linear(size, num_actions)
        self.baseline = nn.Linear(size, 1)

    def forward(self, inputs):
        steps, batch = inputs.done.shape
        x = inputs.frame.flatten(0, 1).float() / 255.0
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.relu(conv(x))
        x = torch.relu(self.fc(x.flatten(1)))
        last_action = nn.functional.one_hot(inputs.last_action.flatten(), self.num_actions)
        x = torch.cat([x, inputs.reward.clamp(-1, 1).view(-1, 1), last_action], dim=1)
        if hasattr(self, "core"):
            state = (torch.zeros(2, batch, x.shape[1]),) * 2
            outputs = []
            for row, ended in zip(x.view(steps, batch, -1), inputs.done, strict=True):
                state = tuple(torch.where(ended.view(1, -1, 1), 0.0, s) for s in state)
                output, state = self.core(row.unsqueeze(0), state)
                outputs.append(output[0])
            x = torch.cat(outputs)
        return self.policy(x).view(steps, batch, -1), self.baseline(x).view(steps, batch, -1)


def assert_same_as_2019(directory, old, tasks=("PongNoFrameskip-v4",), **args):
    """Checks that a checkpoint of 2019 gives the agent that it was; returns its configuration."""
    torch.save({"model_state_dict": old.state_dict(), "flags": {}}, directory / "model.tar")
    (directory / "meta.json").write_text(json.dumps({"args": {"env": ",".join(tasks), **args}}))
    agent = from_checkpoint(directory)
    assert agent.config.tasks == tasks
    inputs = make_inputs(agent.config)
    inputs = inputs._replace(reward=inputs.reward * 10)
    output, _ = agent(inputs._asdict(), agent.initial_state(3))
    logits, baseline = old(inputs)
    torch.testing.assert_close(output.policy_logits, logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.baseline, baseline, atol=1e-5, rtol=1e-5)
    return agent.config


@pytest.mark.parametrize(("use_lstm", "reward_clipping"), [(False, "none"), (True, "abs_one")])
def test_shallow_checkpoints_of_2019_give_the_same_outputs(tmp_path, use_lstm, reward_clipping):
    torch.manual_seed(0)
    old = ShallowNet2019(6, use_lstm)  # Clips its input whatever the learner does.
    assert_same_as_2019(tmp_path, old, reward_clipping=reward_clipping)


@pytest.mark.parametrize(
    ("use_lstm", "use_popart", "reward_clipping"),
    [
        (False, False, "none"),
        (True, False, "abs_one"),
        (False, True, "abs_one"),
        (True, True, "none"),
    ],
)
def test_checkpoints_of_2019_give_the_same_outputs(tmp_path, use_lstm, use_popart, reward_clipping):
    torch.manual_seed(0)
    # Without PopArt this is TorchBeast's network, which clips its input whatever the learner does.
    clips = not use_popart or reward_clipping == "abs_one"
    old = Net2019(6, 6, use_lstm, use_popart, clips)
    games = {"tasks": SIX_TASKS} if use_popart else {}
    assert_same_as_2019(tmp_path, old, **games, reward_clipping=reward_clipping)


@pytest.mark.parametrize("reward_clipping", ["abs_one", "none"])
def test_statistics_of_an_agent_of_2019_without_popart_are_part_of_its_head(
    tmp_path, reward_clipping
):
    torch.manual_seed(0)
    old = Net2019(6, 1, use_lstm=False, use_popart=False, clips=reward_clipping == "abs_one")
    old.baseline.register_buffer("mu", torch.tensor([30.0]))
    old.baseline.register_buffer("sigma", torch.tensor([4.0]))
    args = {"use_popart": False, "reward_clipping": reward_clipping}
    config = assert_same_as_2019(tmp_path, old, SIX_TASKS, **args)
    assert not config.use_popart


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["vision.vision_cnn.0.weight", "policy_head.bias"], "is an attention agent of 2019"),
        (["a"], "holds no agent of this program"),
    ],
)
def test_other_networks_are_refused_in_one_line(tmp_path, names, message):
    state = dict.fromkeys(names, torch.zeros(2))
    torch.save({"model_state_dict": state}, tmp_path / "model.tar")
    with pytest.raises(UsageError, match=message) as error:
        from_checkpoint(tmp_path)
    assert "\n" not in str(error.value)


def test_an_agent_of_several_games_must_be_told_which_one_it_sees():
    config = AgentConfig(agent_type="atari", observation_shape=(2, 36, 36), tasks=SIX_TASKS)
    fields = make_inputs(config)._asdict()
    del fields["task"]
    with pytest.raises(ValueError, match="plays 6 games: the inputs need 'task'"):
        make_agent(config)(fields)
    make_agent(config._replace(tasks=("A",)))(fields)  # With one game it is clear.


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


def test_checkpoints_of_every_earlier_format_give_the_same_outputs():
    # One file of each version, written by it; ``expected_*`` is what its program computed.
    paths = sorted((ROOT / "tests" / "data").glob("format_*.tar"))
    assert len(paths) == checkpoint.FORMAT_VERSION
    for path in paths:
        contents = checkpoint.load(path)
        agent = from_checkpoint(path)
        frame = (torch.arange(3 * 2 * 36 * 36) % 251).to(torch.uint8).view(3, 2, 1, 36, 36)
        inputs = {
            "frame": frame,
            "reward": torch.zeros(3, 2),
            "done": torch.zeros(3, 2, dtype=torch.bool),
            "task": torch.zeros(3, 2, dtype=torch.int32),
            "last_action": torch.zeros(3, 2, dtype=torch.int64),
        }
        output, _ = agent(inputs)
        torch.testing.assert_close(output.policy_logits, contents["expected_logits"])
        torch.testing.assert_close(output.baseline, contents["expected_baseline"])
