import numpy as np
import pytest

from tests.analysis.saliency.known import Patches, make_step
from torchbeast.analysis.saliency import parse_scores
from torchbeast.analysis.saliency.objects import (
    GameObject,
    agreement,
    check_objects,
    find_background,
    find_objects,
)
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import Trained
from torchbeast.play.games import make_games

PLACES = [(10, 10), (10, 66), (60, 40)]
DARK = np.zeros((4, 84, 84))


@pytest.fixture(scope="module")
def agent():
    return Patches(PLACES).eval()


def test_objects_are_what_differs_from_the_background(agent):
    frame = agent.bright_frame()
    frame[-1, 40, 5] = 255  # One pixel is noise.
    frame[-1, 50, 5:9] = 5  # Too faint.
    assert set(find_objects(frame, DARK)) == {
        GameObject(row, column, row + 6, column + 6) for row, column in PLACES
    }
    assert find_objects(frame, frame.astype(float)) == []


def test_what_matters_is_told_from_what_does_not(agent):
    frame = agent.bright_frame()
    frame[:, 40:44, 40:44] = 255  # An object that no action reads.
    step = make_step(agent, frame)
    (score,) = parse_scores(["action:A0"], step.subject)
    maps = [step.score("action:A0")]
    trained = Trained(agent, "", "")
    found = check_objects(trained, [step], score, maps, step.grid, DARK)
    assert len(found) == 4
    by_place = {(c.box.top, c.box.left): c for c in found}
    assert by_place[(40, 40)].removed == 0 == by_place[(40, 40)].moved
    assert by_place[PLACES[0]].removed == max(c.removed for c in found) > 0
    assert by_place[PLACES[0]].predicted == max(c.predicted for c in found)
    # Without its bright patch the first action is no longer among the likeliest.
    assert by_place[PLACES[0]].action_changes
    assert not by_place[(40, 40)].action_changes
    # The value is the brightness of the last patch, in [0, 1].
    assert by_place[PLACES[2]].value_change == pytest.approx(-1, abs=1e-4)
    assert by_place[PLACES[0]].value_change == pytest.approx(0, abs=1e-6)
    assert agreement(found) > 0.5
    assert agreement(found[:2]) is None


def test_pongs_ball_and_paddles_are_no_background():
    agent = make_agent(AgentConfig(agent_type="atari")).eval()
    trained = Trained(agent, "", "")
    background = find_background(trained, "PongNoFrameskip-v4")
    assert background.shape == (4, 84, 84)
    (env,) = make_games(trained, "PongNoFrameskip-v4", seed=5)
    frame = env.reset()[0]
    for _ in range(60):
        frame = env.step(0)[0]
    env.close()
    objects = find_objects(np.asarray(frame), background)
    field = [box for box in objects if box.top > 15]
    assert field
    assert all((box.bottom - box.top) * (box.right - box.left) < 60 for box in field)
