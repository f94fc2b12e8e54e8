import pytest

from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play import games as actions
from torchbeast.play.agents import Trained

PONG = "PongNoFrameskip-v4"


def make(name, num_actions):
    return Trained(make_agent(AgentConfig(agent_type="atari", num_actions=num_actions)), name, "")


def test_action_files_of_this_program_and_of_2019_are_read(tmp_path):
    path = tmp_path / "actions"
    path.write_text("1 2\n3\n")
    assert actions.read_actions(str(path), 4) == [1, 2, 3]
    # As a print of 2019 has them.
    path.write_text("tensor([[[1]]])\ntensor([[2]], device='cuda:0')\ntensor(3)\n")
    assert actions.read_actions(str(path), 4) == [1, 2, 3]
    with pytest.raises(UsageError, match="actions are 0 to 2"):
        actions.read_actions(str(path), 3)
    path.write_text("left")
    with pytest.raises(UsageError, match="--actions"):
        actions.read_actions(str(path), 3)


def test_an_action_keeps_its_meaning_for_an_agent_with_other_numbers():
    few, all_18 = make("few", 6), make("all", 18)
    assert actions.agent_action_names(few, PONG)[2:4] == ["RIGHT", "LEFT"]
    translated = actions.translate_actions([0, 2, 3, 3], PONG, few, all_18)
    assert [actions.agent_action_names(all_18, PONG)[a] for a in translated] == [
        "NOOP",
        "RIGHT",
        "LEFT",
        "LEFT",
    ]
    assert actions.translate_actions(translated, PONG, all_18, few) == [0, 2, 3, 3]
    with pytest.raises(UsageError, match="few has no action UP, which all plays"):
        actions.translate_actions([2], PONG, all_18, few)
