"""Names of 2019 for making a game. The preprocessing is in ``torchbeast.envs.preprocessing``.

    wrap_pytorch(wrap_deepmind(make_atari(env_id), clip_rewards=False, frame_stack=True))

is ``torchbeast.envs.make_env(env_id)``. One wrapper does all preprocessing, so ``make_atari`` does
it already, and ``wrap_deepmind`` only checks that nothing else is asked for.
"""

from __future__ import annotations

import gymnasium

from torchbeast.envs import make_env


def make_atari(
    env_id: str, max_episode_steps: None = None, full_action_space: bool = False
) -> gymnasium.Env:
    """Returns the preprocessed game; see :func:`torchbeast.envs.make_env`."""
    if max_episode_steps is not None:
        raise ValueError("max_episode_steps must be None, as in 2019")
    return make_env(env_id, full_action_space=full_action_space)


def wrap_deepmind(
    env: gymnasium.Env,
    episode_life: bool = True,
    clip_rewards: bool = True,
    frame_stack: bool = False,
    scale: bool = False,
) -> gymnasium.Env:
    """Returns ``env`` as it is.

    Raises ValueError for options with which TorchBeast never made a game.
    """
    if not episode_life:
        raise ValueError("episode_life=False: use torchbeast.envs.make_env(..., full_games=True)")
    if clip_rewards or scale or not frame_stack:
        raise ValueError(
            "wrap_deepmind takes clip_rewards=False, frame_stack=True and scale=False only: the "
            "learner clips rewards, the network scales frames, and make_atari has stacked them"
        )
    return env


def wrap_pytorch(env: gymnasium.Env) -> gymnasium.Env:
    """Returns ``env`` as it is: its observations are ``[C, H, W]`` already."""
    return env
