from torchbeast.joining.places import Places
from torchbeast.runtime.allocation import ServerLoad, allocate


def tasks(loads, places):
    return [loads[place].task for place in places]


def test_a_host_gets_one_place_of_each_game_before_a_second_of_any():
    loads = tuple(sorted(allocate([8, 8, 8], 9)))
    places = Places(loads)
    assert sorted(tasks(loads, places.deal(3, {0, 1, 2}))) == [0, 1, 2]
    assert sorted(tasks(loads, places.deal(5, {0, 1, 2}))) == [0, 0, 1, 1, 2]
    assert places.num_free == 1


def test_the_game_with_the_smallest_share_comes_first():
    loads = (ServerLoad(0, 6), ServerLoad(1, 2), ServerLoad(0, 6), ServerLoad(1, 2))
    places = Places(loads)
    (first,) = places.deal(1, {0})
    assert tasks(loads, places.deal(2, {0, 1})) == [1, 0]
    places.free([first])
    assert places.deal(9, {0, 1}) == (first, 3)


def test_only_games_that_the_host_serves_are_dealt():
    loads = allocate([4, 4], 4)
    places = Places(loads)
    assert tasks(loads, places.deal(9, {1})) == [1, 1]
    assert places.deal(1, {1}) == ()
    assert tasks(loads, places.deal(9, {0, 1})) == [0, 0]


def test_places_that_are_given_back_are_dealt_again():
    places = Places(allocate([4], 2))
    assert places.deal(2, {0}) == (0, 1)
    places.free([1])
    assert places.deal(2, {0}) == (1,)


def test_places_are_dealt_as_if_each_were_dealt_alone():
    loads = tuple(sorted(allocate([7, 4, 12, 5], 16)))
    at_once, alone = Places(loads), Places(loads)
    together = at_once.deal(11, {0, 2, 3})
    assert sorted(sum((alone.deal(1, {0, 2, 3}) for _ in range(11)), ())) == list(together)
