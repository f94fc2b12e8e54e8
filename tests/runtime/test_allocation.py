import itertools

import pytest

from torchbeast.runtime.allocation import (
    DEFAULT_NUM_ACTORS,
    allocate,
    choose_server,
    default_num_actors,
    default_num_servers,
    divide,
    task_of,
)

ALL = [
    (num_actors, num_tasks, num_servers)
    for num_actors, num_tasks in itertools.product(range(1, 31), range(1, 8))
    for num_servers in range(num_tasks, num_actors + 1)
]


def test_no_environment_is_lost_and_games_and_servers_have_equal_shares():
    for sizes in ALL:
        num_actors, num_tasks, num_servers = sizes
        shares = divide(num_actors, num_tasks)
        assert list(shares) == sorted(shares, reverse=True), sizes
        assert max(shares) - min(shares) == (num_actors % num_tasks > 0), sizes
        loads = allocate(shares, num_servers)
        for task, share in enumerate(shares):
            of_servers = [n for i, n in enumerate(loads) if task_of(i, num_tasks) == task]
            assert sum(of_servers) == share, sizes
            assert 1 <= max(of_servers) <= min(of_servers) + 1, sizes


@pytest.mark.parametrize(("shares", "num_servers"), [([2, 2], 5), ([2, 1, 1], 2)])
def test_a_server_without_game_or_environment_is_refused(shares, num_servers):
    with pytest.raises(ValueError, match="every game needs a server"):
        allocate(shares, num_servers)


def test_default_sizes_fit_any_number_of_games():
    for num_tasks in range(1, 110):
        num_actors = default_num_actors(num_tasks)
        assert num_tasks <= DEFAULT_NUM_ACTORS <= num_actors or num_actors == num_tasks
        assert num_actors - num_tasks < DEFAULT_NUM_ACTORS
        shares = divide(num_actors, num_tasks)
        assert len(set(shares)) == 1
        for cores in (1, 2, 8, 64):
            allocate(shares, default_num_servers(cores, shares))


def test_games_short_of_environments_come_first():
    loads = allocate([4, 4, 2], 8)  # Servers of the games 0, 1, 2, 0, 1, 2, 0, 1.
    assert choose_server(loads, 3, set()) == 0
    assert choose_server(loads, 3, {0, 3, 6, 1}) == 2
    assert choose_server(loads, 3, {0, 1, 2, 3, 6}) == 4
    assert choose_server(loads, 3, {0, 1, 2, 3, 4, 5, 7}) == 6
