import itertools
import random

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


def test_no_environment_is_lost_and_games_and_servers_have_equal_shares():
    for sizes in ALL:
        num_actors, num_tasks, num_servers = sizes
        shares = divide(num_actors, [1] * num_tasks)
        assert list(shares) == sorted(shares, reverse=True), sizes
        assert max(shares) - min(shares) == (num_actors % num_tasks > 0), sizes
        loads = allocate(shares, num_servers)
        assert environments_per_task(loads) == list(shares), sizes
        assert [load.task for load in loads] == [task_of(i, num_tasks) for i in range(num_servers)]
        for task in range(num_tasks):
            of_servers = [load.num_environments for load in loads if load.task == task]
            assert 1 <= max(of_servers) <= min(of_servers) + 1, sizes


def test_shares_are_those_that_the_weights_ask_for_to_less_than_one_environment():
    generator = random.Random(0)
    for _ in range(300):
        weights = [generator.uniform(1, 5) for _ in range(generator.randint(1, 10))]
        num_actors = generator.randint(5 * len(weights), 100)
        shares = divide(num_actors, weights)
        assert sum(shares) == num_actors
        for share, weight in zip(shares, weights, strict=True):
            assert abs(share - num_actors * weight / sum(weights)) < 1


def test_a_game_of_small_weight_keeps_an_environment():
    assert divide(6, [1000, 1, 1]) == (4, 1, 1)
    assert divide(3, [1000, 1, 1]) == (1, 1, 1)
    assert divide(4, [1e308, 1e308]) == (2, 2)


def test_monobeast_has_the_same_shares():
    for num_actors, num_tasks, _ in ALL:
        if num_tasks <= num_actors:
            shares = divide(num_actors, range(1, num_tasks + 1))
            tasks = actor_tasks(shares)
            assert [tasks.count(task) for task in range(num_tasks)] == list(shares)
    assert actor_tasks([2, 2, 2]) == (0, 1, 2, 0, 1, 2)


@pytest.mark.parametrize(("shares", "num_servers"), [([2, 2], 5), ([2, 1, 1], 2), ([3, 1], 4)])
def test_a_server_without_game_or_environment_is_refused(shares, num_servers):
    with pytest.raises(ValueError, match="every game needs a server"):
        allocate(shares, num_servers)


@pytest.mark.parametrize(("num_actors", "weights"), [(1, [1, 1]), (4, [])])
def test_a_game_without_environment_is_refused(num_actors, weights):
    with pytest.raises(ValueError, match="cannot share"):
        divide(num_actors, weights)


def test_default_sizes_fit_any_number_of_games():
    for num_tasks in range(1, 110):
        num_actors = default_num_actors([1] * num_tasks)
        assert num_tasks <= DEFAULT_NUM_ACTORS <= num_actors or num_actors == num_tasks
        assert num_actors - num_tasks < DEFAULT_NUM_ACTORS
        shares = divide(num_actors, [1] * num_tasks)
        assert len(set(shares)) == 1
        for cores in (1, 2, 8, 64):
            allocate(shares, default_num_servers(cores, shares))


@pytest.mark.parametrize(
    ("weights", "shares"), [([2, 1], (12, 6)), ([4, 2], (12, 6)), ([1.5, 1], (10, 6))]
)
def test_default_sizes_fit_weights(weights, shares):
    assert divide(default_num_actors(weights), weights) == shares
    for cores in (1, 2, 8, 64):
        allocate(shares, default_num_servers(cores, shares))
