import itertools

import pytest

from torchbeast.runtime.allocation import (
    DEFAULT_NUM_ACTORS,
    actor_tasks,
    allocate,
    default_num_actors,
    default_num_servers,
    divide,
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
        loads = allocate(divide(num_actors, num_tasks), num_servers)
        assert len(loads) == num_servers, sizes
        assert sum(environments_per_task(loads)) == num_actors, sizes
        assert min(load.num_environments for load in loads) >= 1, sizes
        assert [load.task for load in loads] == [task_of(i, num_tasks) for i in range(num_servers)]


def test_games_have_equal_shares_whatever_the_number_of_servers():
    for sizes in ALL:
        num_actors, num_tasks, num_servers = sizes
        shares = divide(num_actors, num_tasks)
        assert environments_per_task(allocate(shares, num_servers)) == list(shares), sizes
        assert list(shares) == sorted(shares, reverse=True), sizes
        assert max(shares) - min(shares) == (num_actors % num_tasks > 0), sizes


def test_the_servers_of_a_game_have_equal_shares():
    for num_actors, num_tasks, num_servers in ALL:
        for task in range(num_tasks):
            loads = allocate(divide(num_actors, num_tasks), num_servers)
            shares = [load.num_environments for load in loads if load.task == task]
            assert max(shares) - min(shares) <= 1


def test_monobeast_has_the_same_shares():
    for num_actors, num_tasks, _ in ALL:
        if num_tasks <= num_actors:
            shares = divide(num_actors, num_tasks)
            tasks = actor_tasks(shares)
            assert [tasks.count(task) for task in range(num_tasks)] == list(shares)
    assert actor_tasks([2, 2, 2]) == (0, 1, 2, 0, 1, 2)


@pytest.mark.parametrize(("shares", "num_servers"), [([2, 2], 5), ([2, 1, 1], 2), ([3, 1], 4)])
def test_a_server_without_game_or_environment_is_refused(shares, num_servers):
    with pytest.raises(ValueError, match="every game needs a server"):
        allocate(shares, num_servers)


@pytest.mark.parametrize(("num_actors", "num_tasks"), [(1, 2), (4, 0)])
def test_a_game_without_environment_is_refused(num_actors, num_tasks):
    with pytest.raises(ValueError, match="cannot share"):
        divide(num_actors, num_tasks)


@pytest.mark.parametrize("num_tasks", range(1, 110))
def test_default_sizes_fit_any_number_of_games(num_tasks):
    num_actors = default_num_actors(num_tasks)
    assert num_actors >= DEFAULT_NUM_ACTORS
    assert num_actors - num_tasks < DEFAULT_NUM_ACTORS
    shares = divide(num_actors, num_tasks)
    assert len(set(shares)) == 1
    for cores in (1, 2, 8, 64):
        assert environments_per_task(allocate(shares, default_num_servers(cores, shares)))
