"""How the environments of a run are divided among its games and its environment servers."""

from __future__ import annotations

from collections.abc import Sequence, Set

# Environments of a run that does not ask for a number. Runs of many games have more.
DEFAULT_NUM_ACTORS = 16
# A server has one connection with the actor pool, and all its environments share it.
MAX_ENVIRONMENTS_PER_STREAM = 1024


def default_num_actors(num_tasks: int) -> int:
    """Returns the smallest number from ``DEFAULT_NUM_ACTORS`` on that gives equal shares.

    >>> [default_num_actors(num_tasks) for num_tasks in (1, 3, 6, 16, 104)]
    [16, 18, 18, 16, 104]
    """
    return num_tasks * -(-DEFAULT_NUM_ACTORS // num_tasks)


def divide(num_actors: int, num_tasks: int) -> tuple[int, ...]:
    """Divides environments equally among games; the first games have those that are left over.

    Args:
        num_actors: environments of the run, at least one per game.

    Returns:
        The number of environments of each game.

    >>> divide(16, 6)
    (3, 3, 3, 3, 2, 2)
    """
    if not 1 <= num_tasks <= num_actors:
        raise ValueError(f"{num_tasks} games cannot share {num_actors} environments")
    return tuple(_part(num_actors, num_tasks, task) for task in range(num_tasks))


def task_of(index: int, num_tasks: int) -> int:
    """Returns the task of environment server ``index``, or of MonoBeast's actor: round-robin.

    Servers on other machines are started on their own. Both sides know a server's game from its
    index alone.
    """
    return index % num_tasks


def default_num_servers(cores: int, shares: Sequence[int]) -> int:
    """Returns the number of servers: about one per core, and equally many for every game.

    Args:
        shares: environments of each game. No server is without one.
    """
    num_tasks = len(shares)
    servers_per_task = max(
        round(min(cores, sum(shares)) / num_tasks),
        -(-max(shares) // MAX_ENVIRONMENTS_PER_STREAM),
    )
    return num_tasks * min(servers_per_task, *shares)


def allocate(shares: Sequence[int], num_servers: int) -> tuple[int, ...]:
    """Divides each game's environments among its servers.

    Args:
        shares: environments of each game.
        num_servers: environment servers, at least one per game.

    Returns:
        The number of environments of each server, at least one. :func:`task_of` tells their games.

    >>> allocate([6, 6], num_servers=3)
    (3, 6, 3)
    """
    num_tasks = len(shares)
    loads = []
    for index in range(num_servers):
        task = task_of(index, num_tasks)
        servers = _part(num_servers, num_tasks, task)
        loads.append(_part(shares[task], servers, index // num_tasks))
    if num_servers < num_tasks or min(loads) < 1:
        raise ValueError(
            f"{num_servers} servers for games with {', '.join(map(str, shares))} environments: "
            "every game needs a server, and every server an environment"
        )
    return tuple(loads)


def choose_server(loads: Sequence[int], num_tasks: int, present: Set[int]) -> int:
    """Returns the missing server whose game has the smallest part of its environments.

    Args:
        loads: environments of each server.
        present: servers that are not missing.
    """
    there = [0] * num_tasks
    for index in present:
        there[task_of(index, num_tasks)] += loads[index]
    parts = [there[task] / sum(loads[task::num_tasks]) for task in range(num_tasks)]
    missing = set(range(len(loads))) - present
    return min(missing, key=lambda index: (parts[task_of(index, num_tasks)], index))


def _part(total: int, parts: int, index: int) -> int:
    """Part ``index`` of ``total`` in ``parts`` parts, the larger ones first."""
    return total // parts + (index < total % parts)
