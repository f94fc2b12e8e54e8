import gymnasium
import numpy as np
import pytest

from tests.odd_games import Fractions
from torchbeast.core.types import ObservationConfig, UsageError
from torchbeast.envs import atari_actions, make_env, plan_envs
from torchbeast.envs.specs import describe_custom, name_actions


def test_games_that_differ_get_all_actions():
    assert plan_envs(("PongNoFrameskip-v4",)) == (6, (4, 84, 84), False)
    assert plan_envs(("BreakoutNoFrameskip-v4",)).num_actions == 4
    spec = plan_envs(("PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"))
    assert (spec.num_actions, spec.full_action_space) == (18, True)


def test_equally_many_but_other_actions_are_another_set():
    # Three actions each, of which one is the same. Skiing's full set is every game's, too.
    assert plan_envs(("FreewayNoFrameskip-v4", "SkiingNoFrameskip-v4")).num_actions == 18


@pytest.mark.parametrize(
    ("preprocessing", "frame_format"),
    [("deepmind", "gray_stack"), ("machado", "rgb_last"), ("machado", "rgb_stack")],
)
def test_what_is_found_without_an_environment_is_what_it_has(preprocessing, frame_format):
    observation = ObservationConfig(preprocessing, frame_format, 42, 50)
    spec = plan_envs(("ALE/Breakout-v5",), observation)
    env = make_env("ALE/Breakout-v5", **observation._asdict())
    assert spec.num_actions == env.action_space.n
    assert spec.observation_shape == env.observation_space.shape
    assert list(atari_actions("ALE/Breakout-v5", observation)) == name_actions(env)
    env.close()


MOCK_AND_PONG = ("Mock", "PongNoFrameskip-v4")


@pytest.mark.parametrize(
    ("games", "frame_height", "message"),
    [
        (("tests.odd_games:Fractions-v0",), 84, "pictures of float32; agents take uint8"),
        (("tests.odd_games:Nested-v0",), 84, r"has no picture \[C, H, W\]"),
        (("tests.odd_games:Undeclared-v0",), 84, r"its observation is uint8\[1, 40, 36\]"),
        (MOCK_AND_PONG, 42, r"differ in their pictures: Mock \(4, 84, 84\), Pong"),
        (MOCK_AND_PONG, 84, "differ in their actions: Mock, Pong.*; beside Atari games .* all 18"),
    ],
)
def test_games_that_no_agent_can_play_are_refused(games, frame_height, message):
    with pytest.raises(UsageError, match=message):
        plan_envs(games, ObservationConfig(frame_height=frame_height))


def test_the_shortest_axis_of_a_custom_environment_is_that_of_its_channels():
    assert plan_envs(("tests.odd_games:Deep-v0",)).observation_shape == (12, 36, 40)


def test_actions_that_do_not_start_at_0_are_refused(monkeypatch):
    spaces = gymnasium.spaces
    monkeypatch.setattr(Fractions, "action_space", spaces.Discrete(3, start=-1))
    monkeypatch.setattr(Fractions, "observation_space", spaces.Box(0, 255, (1, 8, 8), np.uint8))
    with pytest.raises(UsageError, match=r"has actions from -1 on; .*TransformAction$"):
        describe_custom("tests.odd_games:Fractions-v0")
    monkeypatch.setattr(Fractions, "action_space", spaces.Box(0, 1, (2,)))
    with pytest.raises(UsageError, match="has no discrete actions: Box"):
        describe_custom("tests.odd_games:Fractions-v0")
