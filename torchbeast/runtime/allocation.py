"""How the environments of a run are divided among its games and its environment servers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

# Environments of a run that does not ask for a number. Runs of many games have more.
DEFAULT_NUM_ACTORS = 16
# More are not chosen for the sake of weights, such as percentages.
MOST_DEFAULT_ACTORS = 4 * DEFAULT_NUM_ACTORS
# Of one connection of the actor pool, of which a server has one.
MAX_ENVIRONMENTS_PER_STREAM = 1024


class ServerLoad(NamedTuple):
    """The work of one environment server."""

    task: int
    """Index of the game that the server plays."""
    num_environments: int
    """Environments of that game that the server steps."""


def default_num_actors(weights: Sequence[float]) -> int:
    """Returns how many environments a run has if its user names no number.

    It is the smallest number from ``DEFAULT_NUM_ACTORS`` on that divides as the weights ask.
    Weights that are not whole numbers, or need more than ``MOST_DEFAULT_ACTORS``, are treated as
    equal ones here.

    Args:
        weights: of the games.

    >>> [default_num_actors([1] * num_tasks) for num_tasks in (1, 3, 6, 16, 104)]
    [16, 18, 18, 16, 104]
    >>> default_num_actors([2, 1]), default_num_actors([67, 33])
    (18, 16)
    """
    parts = len(weights)
    if all(float(weight).is_integer() for weight in weights):
        whole = [int(weight) for weight in weights]
        wanted = sum(whole) // math.gcd(*whole)
        parts = wanted if wanted <= MOST_DEFAULT_ACTORS else parts
    return parts * -(-DEFAULT_NUM_ACTORS // parts)


def divide(num_actors: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Divides environments among games in proportion to weights.

    Every game has at least one. Two games of equal weight differ by at most one environment, and
    the first one has it.

    Args:
        num_actors: environments of the run, at least one per game.
        weights: of the games, greater than 0.

    Returns:
        The number of environments of each game.

    >>> divide(16, [1] * 6), divide(18, [2, 1]), divide(4, [100, 1, 1])
    ((3, 3, 3, 3, 2, 2), (12, 6), (2, 1, 1))
    """
    if not 1 <= len(weights) <= num_actors:
        raise ValueError(f"{len(weights)} games cannot share {num_actors} environments")
    largest = max(weights)  # The sum of the weights themselves may be infinite.
    relative = [weight / largest for weight in weights]
    wanted = [num_actors * weight / sum(relative) for weight in relative]
    shares = [max(1, math.floor(share)) for share in wanted]
    while sum(shares) < num_actors:
        shares[_largest([w - s for w, s in zip(wanted, shares, strict=True)])] += 1
    while sum(shares) > num_actors:
        excess = [s - w if s > 1 else -math.inf for w, s in zip(wanted, shares, strict=True)]
        shares[_largest(excess)] -= 1
    return tuple(shares)


def actor_tasks(shares: Sequence[int]) -> tuple[int, ...]:
    """Returns the task of each of MonoBeast's actors: in turn, while a game has actors left.

    Args:
        shares: actors of each game.

    >>> actor_tasks([3, 1])
    (0, 1, 0, 0)
    """
    return tuple(
        task for turn in range(max(shares)) for task, share in enumerate(shares) if turn < share
    )


def task_of(index: int, num_tasks: int) -> int:
    """Returns the task of environment server ``index``: round-robin.

    Servers on other machines are started on their own. Both sides know a server's game from its
    index alone.
    """
    return index % num_tasks


def default_num_servers(cores: int, shares: Sequence[int]) -> int:
    """Returns the number of servers: about one per core, and equally many for every game.

    Args:
        cores: that the run uses.
        shares: environments of each game. No server is without one.
    """
    num_tasks = len(shares)
    servers_per_task = max(
        round(min(cores, sum(shares)) / num_tasks),
        -(-max(shares) // MAX_ENVIRONMENTS_PER_STREAM),
    )
    return num_tasks * min(servers_per_task, *shares)


def allocate(shares: Sequence[int], num_servers: int) -> tuple[ServerLoad, ...]:
    """Divides each game's environments among its servers.

    Args:
        shares: environments of each game.
        num_servers: environment servers, at least one per game.

    Returns:
        The load of each server, in the order of the servers. Every server has an environment.

    >>> [load.num_environments for load in allocate([6, 6], num_servers=3)]
    [3, 6, 3]
    """
    num_tasks = len(shares)
    loads = []
    for index in range(num_servers):
        task = task_of(index, num_tasks)
        servers = _part(num_servers, num_tasks, task)
        loads.append(ServerLoad(task, _part(shares[task], servers, index // num_tasks)))
    if num_servers < num_tasks or min(load.num_environments for load in loads) < 1:
        raise ValueError(
            f"{num_servers} servers for games with {', '.join(map(str, shares))} environments: "
            "every game needs a server, and every server an environment"
        )
    return tuple(loads)


def environments_per_task(loads: Sequence[ServerLoad]) -> list[int]:
    """Returns the number of environments of each game, in the order of the games.

    >>> environments_per_task(allocate([3, 3, 3, 3, 2, 2], num_servers=6))
    [3, 3, 3, 3, 2, 2]
    """
    counts = [0] * len({load.task for load in loads})
    for load in loads:
        counts[load.task] += load.num_environments
    return counts


def _part(total: int, parts: int, index: int) -> int:
    """Part ``index`` of ``total`` in ``parts`` parts, the larger ones first."""
    return total // parts + (index < total % parts)


def _largest(values: Sequence[float]) -> int:
    """The index of the largest value, the first of equal ones."""
    return max(range(len(values)), key=values.__getitem__)
