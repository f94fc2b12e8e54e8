import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play import game_loop
from torchbeast.play.agents import Trained

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
SPACE_INVADERS = "SpaceInvadersNoFrameskip-v4"


def make(num_actions=6, **config):
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", num_actions=num_actions, **config))
    return Trained(agent.eval(), "run", "7")


@pytest.mark.parametrize(
    ("game", "config", "message"),
    [
        (PONG, {"num_actions": 5}, "run has 5 actions"),
        (PONG, {"observation_shape": (3, 84, 84)}, "trained on observations of shape"),
        ("tests.odd_games:Nested-v0", {"num_actions": 2}, "has None"),
    ],
)
def test_games_that_do_not_fit_are_refused(game, config, message):
    with (
        pytest.raises(UsageError, match=message),
        game_loop.open_games(make(**config), game, 2),
    ):
        pass


def test_plays_full_games_to_their_end_and_the_same_with_a_seed():
    games = [list(game_loop.play(make(4), BREAKOUT, 3, seed=1, greedy=False)) for _ in range(2)]
    assert games[0] == games[1]
    for episode in games[0]:
        assert episode.episode_step > 80  # Five lives; one takes about thirty steps.


def test_a_custom_game_is_the_same_with_a_seed_and_its_pictures_are_copies():
    game = "tests.odd_games:Canvas-v0"
    trained = make(2, observation_shape=(1, 36, 36), tasks=(game,))
    episodes = [list(game_loop.play(trained, game, 2, seed=1)) for _ in range(2)]
    assert episodes[0] == episodes[1]
    assert episodes[0][0].episode_return != episodes[0][1].episode_return
    pictures = [step.picture for step in game_loop.watch_game(trained, game, num_frames=3)]
    assert [picture[0, 0, 0] for picture in pictures] == [0, 1, 2]


@pytest.mark.parametrize("greedy", [True, False])
def test_actions_are_the_most_probable_ones_or_sampled(greedy):
    trained = make(4)
    torch.nn.init.zeros_(trained.agent.policy.weight)  # All actions have the same probability.
    torch.nn.init.zeros_(trained.agent.policy.bias)
    with game_loop.open_games(trained, BREAKOUT) as envs:
        loop = game_loop.GameLoop(trained, BREAKOUT, envs, greedy=greedy)
        chosen = set()
        for _ in range(30):
            loop.step()
            chosen.add(int(loop.last_actions[0]))
    assert chosen == ({0} if greedy else {0, 1, 2, 3})


def test_games_side_by_side_start_differently():
    trained = make(6)
    with game_loop.open_games(trained, SPACE_INVADERS, 4, seed=1) as envs:
        frames = game_loop.GameLoop(trained, SPACE_INVADERS, envs).inputs.frame[0]
    assert len({frame.numpy().tobytes() for frame in frames}) > 1


def test_the_first_games_that_start_are_counted_and_not_the_first_that_end():
    game = "tests.odd_games:Unequal-v0"
    trained = make(2, observation_shape=(1, 36, 36), tasks=(game,))
    lengths = [episode.episode_step for episode in game_loop.play(trained, game, 9, seed=0)]
    assert sorted(lengths) == [5] * 8 + [50]


@pytest.mark.parametrize(("game", "steps"), [("Endless", 20), ("ManyLives", 20), ("Limited", 30)])
def test_a_game_without_an_end_is_ended_and_scored(monkeypatch, caplog, game, steps):
    monkeypatch.setattr(game_loop, "MAX_GAME_STEPS", 20)
    game_loop._report_limit.cache_clear()
    game = f"tests.odd_games:{game}-v0"
    trained = make(2, observation_shape=(1, 36, 36), tasks=(game,))
    assert list(game_loop.play(trained, game, 3)) == [(game, steps, steps)] * 3
    assert caplog.messages == [
        f"{game}: a game that is not over after {steps} steps ends there, with the return it has"
    ]


def test_given_actions_are_played_first():
    seen = []
    trained = make(4)
    forward = trained.agent.forward

    def spy(inputs, state, sample):
        seen.append(inputs.last_action[0, 0].item())
        return forward(inputs, state, sample=sample)

    trained.agent.forward = spy
    list(game_loop.play(trained, BREAKOUT, 1, actions=[2, 1, 3], greedy=False))
    assert seen[:4] == [0, 2, 1, 3]


@pytest.mark.parametrize(("lstm_reset", "num_resets"), [("life", 5), ("game", 1)])
def test_memory_is_reset_where_it_was_in_training(lstm_reset, num_resets):
    trained = make(4, use_lstm=True, lstm_reset=lstm_reset)
    starts = []
    memory_starts = trained.agent.memory_starts

    def spy(fields):
        starts.append(bool(memory_starts(fields)))
        return memory_starts(fields)

    trained.agent.memory_starts = spy
    (episode,) = game_loop.play(trained, BREAKOUT, 1, greedy=False, seed=1)
    assert starts[0]
    assert sum(starts) == num_resets
    assert len(starts) == episode.episode_step


def test_action_files_of_this_program_and_of_2019_are_read(tmp_path):
    path = tmp_path / "actions"
    path.write_text("1 2\n3\n")
    assert game_loop.read_actions(str(path), 4) == [1, 2, 3]
    # As a print of 2019 has them.
    path.write_text("tensor([[[1]]])\ntensor([[2]], device='cuda:0')\ntensor(3)\n")
    assert game_loop.read_actions(str(path), 4) == [1, 2, 3]
    with pytest.raises(UsageError, match="actions are 0 to 2"):
        game_loop.read_actions(str(path), 3)
    path.write_text("left")
    with pytest.raises(UsageError, match="--actions"):
        game_loop.read_actions(str(path), 3)


def test_an_action_keeps_its_meaning_for_an_agent_with_other_numbers():
    few, all_18 = make(6), make(18)
    assert game_loop.agent_action_names(few, PONG)[2:4] == ["RIGHT", "LEFT"]
    translated = game_loop.translate_actions([0, 2, 3, 3], PONG, few, all_18)
    assert [game_loop.agent_action_names(all_18, PONG)[a] for a in translated] == [
        "NOOP",
        "RIGHT",
        "LEFT",
        "LEFT",
    ]
    assert game_loop.translate_actions(translated, PONG, all_18, few) == [0, 2, 3, 3]
    with pytest.raises(UsageError, match="has no action UP, which run plays"):
        game_loop.translate_actions([2], PONG, all_18, few)
