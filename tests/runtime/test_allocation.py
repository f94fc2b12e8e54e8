import itertools

import pytest

from torchbeast.runtime.allocation import (
    DEFAULT_NUM_ACTORS,
    allocate,
    default_num_actors,
    default_num_servers,
    environments_per_task,
    task_of,
)

ALL = [
    (num_actors, num_tasks, num_servers)
    for num_actors, num_tasks in itertools.product(range(1, 31), range(1, 8))
    for num_servers in range(num_tasks, num_actors + 1)
]


def test_no_environment_is_lost_and_no_server_is_idle():
    for sizes in ALL:
        num_actors, num_tasks, num_servers = sizes
        loads = allocate(*sizes)
        assert len(loads) == num_servers, sizes
        assert sum(environments_per_task(loads)) == num_actors, sizes
        assert min(load.num_environments for load in loads) >= 1, sizes
        assert [load.task for load in loads] == [task_of(i, num_tasks) for i in range(num_servers)]


def test_games_have_equal_shares_whatever_the_number_of_servers():
    for sizes in ALL:
        num_actors, num_tasks, _ = sizes
        shares = environments_per_task(allocate(*sizes))
        assert len(shares) == num_tasks, sizes
        assert max(shares) - min(shares) == (num_actors % num_tasks > 0), sizes


def test_the_servers_of_a_game_have_equal_shares():
    for sizes in ALL:
        for task in range(sizes[1]):
            shares = [load.num_environments for load in allocate(*sizes) if load.task == task]
            assert max(shares) - min(shares) <= 1, sizes


@pytest.mark.parametrize("sizes", [(4, 2, 5), (4, 3, 2), (0, 0, 0)])
def test_a_server_without_game_or_environment_is_refused(sizes):
    with pytest.raises(ValueError, match="every game needs a server"):
        allocate(*sizes)


@pytest.mark.parametrize("num_tasks", range(1, 110))
def test_default_sizes_fit_any_number_of_games(num_tasks):
    num_actors = default_num_actors(num_tasks)
    assert num_actors >= DEFAULT_NUM_ACTORS
    assert num_actors - num_tasks < DEFAULT_NUM_ACTORS
    for cores in (1, 2, 8, 64):
        num_servers = default_num_servers(cores, num_actors, num_tasks)
        shares = environments_per_task(allocate(num_actors, num_tasks, num_servers))
        assert len(set(shares)) == 1
