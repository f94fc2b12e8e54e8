import cv2
import numpy as np
import pytest

from tests.analysis.saliency.known import Patches, observe
from torchbeast.analysis.saliency import objects
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import Trained

RED, BLUE, GREEN, SKY = (200, 0, 0), (0, 0, 200), (0, 200, 0), (90, 90, 120)
PATCHES = [(10, 10), (40, 40), (70, 10)]
SIZE = 6


def make_moment(*squares):
    """A picture and the same as an observation: squares by colour, row and column, or digits."""
    picture = np.full((84, 84, 3), SKY, np.uint8)
    frame = np.zeros((4, 84, 84), np.uint8)
    picture[2:8, 70:76] = frame[:, 2:8, 70:76] = 255  # A digit, which stays in its place.
    for colour, row, column in squares:
        picture[row : row + SIZE, column : column + SIZE] = colour
        frame[:, row : row + SIZE, column : column + SIZE] = 255
    return objects.Moment([picture], observe(frame), ())


@pytest.fixture
def games():
    """Two games. The red square is on the first patch every third time, the blue one never touches
    a patch. A green one is seen once.
    """
    return [
        [
            make_moment(
                (RED, 10, 10 if t % 3 == 0 else 22 + t),
                (BLUE, 55, 5 + 3 * t),
                *([(GREEN, 30, 60)] if t == 5 and first == 0 else []),
            )
            for t in range(first, first + 20)
        ]
        for first in (0, 1)
    ]


def test_objects_are_found_by_colour_where_something_moves(games):
    found = objects.find_kinds(games)
    assert set(found) == {RED, BLUE}
    for j, places in enumerate(found[BLUE][1]):
        left = 5 + 3 * (j + 1)
        assert places == ([] if j == 0 else [[objects.Place(55, left, 61, left + SIZE)]])


def test_a_colour_that_is_mixed_with_the_background_is_the_objects_own():
    # The maximum of two screens, in one of which the square stood elsewhere.
    mixed = tuple(map(max, BLUE, SKY))
    moments = [make_moment((BLUE, 10, 10 + 2 * t), (mixed, 40, 70 - 2 * t)) for t in range(20)]
    found = objects.find_kinds([moments])
    assert set(found) == {BLUE}
    assert all(len(places[-1]) == 2 for places in found[BLUE][0][1:])


def test_a_cycling_background_is_no_object():
    def moment(t):
        picture = np.full((84, 84, 3), (t, 0, 90), np.uint8)
        picture[40:44, 2 * t : 2 * t + 4] = GREEN
        return objects.Moment([picture], None, ())

    found = objects.find_kinds([[moment(t) for t in range(30)]])
    assert set(found) == {GREEN}


def test_pictures_in_which_nothing_moves_are_refused():
    with pytest.raises(UsageError, match="No object was found"):
        objects.find_kinds([[make_moment()] * 3])
    with pytest.raises(UsageError, match="fewer than 9 frames"):
        objects.find_kinds([[], []])


def test_only_objects_that_the_agent_reacts_to_change_its_outputs(games):
    games = [*games, games[0]]  # Intervals need three.
    found = objects.find_kinds(games)
    trained = Trained(Patches(PATCHES[:2] + PATCHES[:1]).eval(), "mine", "0")
    red, blue = (
        objects.measure(trained, "PongNoFrameskip-v4", games, {colour: found[colour]})[0]
        for colour in (RED, BLUE)
    )
    # The policy has three logits 4, 0 and 4 with the square on its patch, and equal ones without.
    with_it = np.exp([4, 0, 4]) / np.exp([4, 0, 4]).sum()
    distance = 0.5 * np.abs(with_it - 1 / 3).sum()
    share = np.mean([t % 3 == 0 for first in (0, 1, 0) for t in range(first + 1, first + 20)])
    assert red.policy == pytest.approx(share * distance, rel=1e-3)
    assert red.value > 0.5
    assert red.policy_interval.low <= red.policy <= red.policy_interval.high
    assert (blue.policy, blue.value) == (0, 0)
    table = objects.format_table(found, {"mine": [red, blue]})
    assert table[1].split()[:2] == ["#c80000", "57"]
    assert "0.00 [0.00, 0.00]" in table[2]
    assert "nan" not in "".join(table)


def test_the_pictures_of_a_moment_are_those_that_the_agent_sees():
    agent = make_agent(AgentConfig(agent_type="atari", num_actions=4)).eval()
    # Each life starts with FIRE, which the agent sees beside its own steps.
    game = objects.watch_moments(
        Trained(agent, "mine", "0"), "BreakoutNoFrameskip-v4", first_frame=0, num_frames=100
    )
    assert len(game) > 10
    for moment in game:
        for picture, plane in zip(moment.pictures, moment.inputs.frame[0, 0].numpy(), strict=True):
            gray = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
            assert (cv2.resize(gray, (84, 84), interpolation=cv2.INTER_AREA) == plane).all()


def test_an_object_is_removed_from_each_plane_where_it_was():
    def picture(row):
        picture = np.full((84, 84, 3), SKY, np.uint8)
        picture[row : row + SIZE, 20 : 20 + SIZE] = RED
        return picture

    def moment(rows):
        pictures = [picture(row) for row in rows]
        frame = np.stack([(p == RED).all(axis=-1) for p in pictures]).astype(np.uint8)
        return objects.Moment(pictures, observe(frame), ())

    # In the last one it stands for two pictures where it was in the moment before, and moves then.
    moments = [moment(rows) for rows in ((50, 58, 66, 74), (0, 8, 16, 24), (24, 24, 32, 40))]
    found = objects.find_kinds([moments])
    frame = moments[2].inputs.frame[0, 0].numpy()
    assert (frame.sum(axis=(1, 2)) == SIZE * SIZE).all()
    background = np.zeros_like(frame)
    assert not objects.remove(frame, background, found[RED][0][2], (84, 84, 3)).any()


def test_a_place_of_the_picture_is_removed_with_its_margin():
    frame = np.ones((4, 84, 84), np.uint8)
    place = objects.Place(100, 80, 105, 160)
    places = [[], [], [], [place]]
    without = objects.remove(frame, np.zeros_like(frame), places, (210, 160, 3))
    assert without[:3].all()
    rows, columns = np.nonzero(without[3] == 0)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (38, 43, 40, 83)
    assert frame.all()
