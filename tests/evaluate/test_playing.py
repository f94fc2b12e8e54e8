import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.evaluate import playing
from torchbeast.evaluate.config import TrainedAgentConfig
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint

PONG = "PongNoFrameskip-v4"


def make(num_actions=6, **config):
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", num_actions=num_actions, **config))
    return playing.Trained(agent.eval(), "run", "7")


def test_plays_full_games_to_their_end():
    episodes = list(playing.play(make(), PONG, 3, greedy=False, seed=1))
    assert len(episodes) == 3
    for episode in episodes:
        assert -21 <= episode.episode_return <= -10
        assert episode.episode_step > 700


def test_a_game_with_lives_is_scored_whole():
    game = "BreakoutNoFrameskip-v4"
    (episode,) = playing.play(make(4), game, 1, greedy=False, seed=1)
    assert episode.episode_step > 80  # Five lives; one takes about thirty steps.


def test_the_same_seed_plays_the_same_games():
    games = [list(playing.play(make(), PONG, 1, seed=5, greedy=False)) for _ in range(2)]
    assert games[0] == games[1]


def test_given_actions_are_played_first():
    seen = []
    trained = make()
    forward = trained.agent.forward

    def spy(inputs, state, sample):
        seen.append(inputs.last_action[0, 0].item())
        return forward(inputs, state, sample=sample)

    trained.agent.forward = spy
    list(playing.play(trained, PONG, 1, actions=[2, 5, 3]))
    assert seen[:4] == [0, 2, 5, 3]


def test_memory_is_carried_through_a_game():
    trained = make(use_lstm=True)
    norms = []
    forward = trained.agent.forward

    def spy(inputs, state, sample):
        norms.append(state[0].abs().sum().item())
        return forward(inputs, state, sample=sample)

    trained.agent.forward = spy
    list(playing.play(trained, PONG, 1))
    assert norms[0] == 0
    assert min(norms[1:]) > 0


@pytest.mark.parametrize(("lstm_reset", "num_resets"), [("life", 5), ("game", 1)])
def test_memory_is_reset_where_it_was_in_training(lstm_reset, num_resets):
    trained = make(4, use_lstm=True, lstm_reset=lstm_reset)
    starts = []
    memory_starts = trained.agent.memory_starts

    def spy(fields):
        starts.append(bool(memory_starts(fields)))
        return memory_starts(fields)

    trained.agent.memory_starts = spy
    (episode,) = playing.play(trained, "BreakoutNoFrameskip-v4", 1, greedy=False, seed=1)
    assert starts[0]
    assert sum(starts) == num_resets
    assert len(starts) == episode.episode_step


@pytest.mark.parametrize("xpid", ["run", "run/model.tar", "{}/run", "{}/run/model.tar"])
def test_an_agent_is_found_by_name_or_path(tmp_path, monkeypatch, xpid):
    trained = make()
    contents = {
        "agent": trained.agent.config._asdict(),
        "model_state_dict": trained.agent.state_dict(),
    }
    checkpoint.save(tmp_path / "run" / "model.tar", contents)
    flags = TrainedAgentConfig(str(tmp_path), xpid.format(tmp_path), None, None)
    found = playing.load_trained(flags)
    assert found.xpid == "run"
    assert found.agent.config == trained.agent.config
    assert found.agent.config.lstm_reset == "life"
    found = playing.load_trained(flags._replace(lstm_reset="game"))
    assert found.agent.config.lstm_reset == "game"
    monkeypatch.chdir(tmp_path)
    flags = TrainedAgentConfig("elsewhere", "run/model.tar", None, None)
    assert playing.load_trained(flags).xpid == "run"


@pytest.mark.parametrize(
    ("tasks", "env", "expected"),
    [
        (("BreakoutNoFrameskip-v4", PONG), PONG, 1),
        ((PONG, "BreakoutNoFrameskip-v4"), PONG, 0),
        (("BreakoutNoFrameskip-v4", PONG), "ALE/Pong-v5", 1),
        (("BreakoutNoFrameskip-v4",), PONG, 0),
    ],
)
def test_a_game_finds_its_own_value_head(tasks, env, expected):
    assert make(tasks=tasks).find_task(env) == expected


def test_an_agent_of_other_actions_is_refused():
    with pytest.raises(UsageError, match="agent has 5 actions"):
        list(playing.play(make(5), PONG, 1))


def test_an_agent_of_other_pictures_is_refused():
    with pytest.raises(UsageError, match="trained on observations of shape"):
        list(playing.play(make(observation_shape=(3, 84, 84)), PONG, 1))
