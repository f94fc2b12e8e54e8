"""Actions of recorded games: their names, files of them, the same ones for another agent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from torchbeast.core.types import UsageError
from torchbeast.envs.specs import name_actions
from torchbeast.evaluate.playing import GameLoop, open_games
from torchbeast.evaluate.trained import Trained


def action_names(trained: Trained, env_id: str) -> list[str]:
    """Returns the names of the agent's actions in a game, such as NOOP and FIRE."""
    with open_games(trained, env_id) as (env,):
        return name_actions(env)


def translate_actions(
    actions: Sequence[int], env_id: str, source: Trained, target: Trained
) -> list[int]:
    """Translates one agent's actions in a game to another's: some know all 18, some the game's own.

    Raises UsageError if the other lacks one.
    """
    if source.agent.config.num_actions == target.agent.config.num_actions:
        return list(actions)
    names, others = (action_names(trained, env_id) for trained in (source, target))
    missing = sorted({names[action] for action in actions} - set(others))
    if missing:
        raise UsageError(f"{target.xpid} has no action {missing[0]}, which {source.xpid} plays")
    return [others.index(names[action]) for action in actions]


def read_actions(path: str | None, num_actions: int) -> list[int]:
    """Reads the actions in a file of integers between white space. Raises UsageError.

    In files of 2019 an action may also be a tensor of one number: ``tensor([[[3]]])``.
    """
    if path is None:
        return []
    try:
        text = Path(path).expanduser().read_text()
        text = re.sub(r"tensor\(\[*\s*(-?\d+)\s*\]*[^)]*\)", r"\1", text)
        actions = [int(word) for word in text.split()]
    except (OSError, ValueError) as error:
        raise UsageError(f"--actions {path}: {error}") from error
    if any(not 0 <= action < num_actions for action in actions):
        raise UsageError(f"--actions {path}: the agent's actions are 0 to {num_actions - 1}")
    return actions


def play_actions(
    trained: Trained, env_id: str, num_steps: int, *, seed: int, actions: Sequence[int] = ()
) -> list[int]:
    """Plays the first ``num_steps`` steps of a game, or until it ends, and returns what was played:
    ``actions``, and then those of the agent.
    """
    played = []
    with open_games(trained, env_id, seed=seed) as (env,):
        loop = GameLoop(trained, env_id, [env], seed=seed, actions=actions)
        for _ in range(num_steps):
            ended = loop.step()
            played.append(int(loop.last_actions[0]))
            if ended:
                break
    return played
