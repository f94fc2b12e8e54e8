"""How the environments of a run are divided among its games and its environment servers."""

from __future__ import annotations

from typing import NamedTuple

# Environments of a run that does not ask for a number. Runs of many games have more.
DEFAULT_NUM_ACTORS = 16


class ServerLoad(NamedTuple):
    """The work of one environment server."""

    task: int
    """Index of the game that the server plays."""
    num_environments: int
    """Environments of that game that the server steps."""


def default_num_actors(num_tasks: int) -> int:
    """Returns how many environments ``num_tasks`` games have if the user names no number.

    It is the smallest multiple of ``num_tasks`` that is at least ``DEFAULT_NUM_ACTORS``.

    >>> [default_num_actors(num_tasks) for num_tasks in (1, 3, 6, 16, 104)]
    [16, 18, 18, 16, 104]
    """
    return num_tasks * -(-DEFAULT_NUM_ACTORS // num_tasks)


def task_of(index: int, num_tasks: int) -> int:
    """Returns the task of environment server (or MonoBeast actor) ``index``: round-robin.

    Servers on other machines are started on their own. Both sides know a server's game from its
    index alone.
    """
    return index % num_tasks


def default_num_servers(cores: int, num_actors: int, num_tasks: int) -> int:
    """Returns the number of servers: about one per core, and equally many for every game."""
    servers_per_task = max(1, round(min(cores, num_actors) / num_tasks))
    return min(num_tasks * servers_per_task, num_actors)


def allocate(num_actors: int, num_tasks: int, num_servers: int) -> tuple[ServerLoad, ...]:
    """Divides environments among games first, and each game's among its servers.

    Two games have equally many environments whenever ``num_actors`` is a multiple of
    ``num_tasks``, also where one of them has more servers. Otherwise the first games have one
    environment more than the last.

    Args:
        num_actors: environments of the run.
        num_tasks: games of the run.
        num_servers: environment servers, from ``num_tasks`` to ``num_actors``.

    Returns:
        The load of each server, in the order of the servers. Every server has an environment.

    >>> [load.num_environments for load in allocate(num_actors=12, num_tasks=2, num_servers=3)]
    [3, 6, 3]
    """
    if not 1 <= num_tasks <= num_servers <= num_actors:
        raise ValueError(
            f"{num_tasks} games, {num_servers} servers and {num_actors} environments: "
            "every game needs a server, and every server an environment"
        )
    loads = []
    for index in range(num_servers):
        task = task_of(index, num_tasks)
        loads.append(
            ServerLoad(
                task,
                _share(
                    _share(num_actors, num_tasks, task),
                    _share(num_servers, num_tasks, task),
                    index // num_tasks,
                ),
            )
        )
    return tuple(loads)


def environments_per_task(loads: tuple[ServerLoad, ...]) -> list[int]:
    """Returns the number of environments of each game, in the order of the games.

    >>> environments_per_task(allocate(num_actors=16, num_tasks=6, num_servers=6))
    [3, 3, 3, 3, 2, 2]
    """
    counts = [0] * len({load.task for load in loads})
    for load in loads:
        counts[load.task] += load.num_environments
    return counts


def _share(total: int, parts: int, index: int) -> int:
    """Part ``index`` of ``total`` in ``parts`` parts, the larger ones first."""
    return total // parts + (index < total % parts)
