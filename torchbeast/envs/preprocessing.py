"""Preprocessing of Atari games.

One wrapper instead of a chain: it talks to the emulator directly, draws only the two pictures that
an observation needs, and keeps them in separate buffers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ale_py
import cv2
import gymnasium
import numpy as np

from torchbeast.core.types import ObservationConfig


class Preprocessing(NamedTuple):
    """How a game is presented to the agent."""

    noop_max: int  # A game starts with 1 to this many idle frames; 0 for none.
    fire_on_reset: bool  # Press FIRE at the start of games that have it.
    episodic_life: bool  # A lost life ends the training episode (the game continues).
    sticky_action_probability: float  # The emulator repeats the last action with this probability.
    full_action_space: bool  # All 18 actions instead of those that the game knows.


# Mnih et al. 2015, with the no-op starts of van Hasselt et al. 2015.
DEEPMIND = Preprocessing(
    noop_max=30,
    fire_on_reset=True,
    episodic_life=True,
    sticky_action_probability=0.0,
    full_action_space=False,
)
# Machado et al. 2018, section 5; but games may last 108,000 frames, as in DEEPMIND, not 18,000.
MACHADO = Preprocessing(
    noop_max=0,
    fire_on_reset=False,
    episodic_life=False,
    sticky_action_probability=0.25,
    full_action_space=True,
)
PROFILES = {"deepmind": DEEPMIND, "machado": MACHADO}
EMULATOR_FPS = 60
FRAME_SKIP = 4  # Emulator frames per agent step.
# Games (names of their ROMs) whose gray screen in ale-py is not the luminance of the colour screen:
# it is that of another television norm.
WRONG_GRAY = frozenset({"air_raid", "laser_gates"})


class FrameFormat(NamedTuple):
    """What a picture is made of."""

    colour: bool
    num_pictures: int  # One for each of the last agent steps, the newest last.


FRAME_FORMATS = {
    "gray_stack": FrameFormat(colour=False, num_pictures=4),
    "rgb_last": FrameFormat(colour=True, num_pictures=1),
    "rgb_stack": FrameFormat(colour=True, num_pictures=4),
}


class AtariPreprocessing(gymnasium.Wrapper):
    """Frame skip with maximum over the last two frames, resizing, stacking, lives, starts.

    Observations are uint8 ``[C, H, W]``: of ``frame_format`` ``gray_stack`` four gray pictures
    (``C`` is 4), of ``rgb_last`` one in colour (3), of ``rgb_stack`` four in colour (12), the
    newest last; at a game's start all are its first picture. With ``episodic_life`` a lost life
    terminates the episode and ``reset`` continues the same game; ``info["game_over"]`` tells
    both ends apart. With ``full_games`` episodes last until the game is over; what ``reset`` would
    do after a lost life is then done on the way, so that the agent sees what it saw in training.
    Rewards are the game's own. What is earned while buttons are pressed for the agent is added to
    its next reward, so that returns are full-game scores.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        observation: ObservationConfig,
        full_action_space: bool = False,
        full_games: bool = False,
    ) -> None:
        super().__init__(env)
        self._config = PROFILES[observation.preprocessing]
        self._format = FRAME_FORMATS[observation.frame_format]
        size = observation.frame_height, observation.frame_width
        self._full_games = full_games
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
        # All 18 for every game: Skiing's own "legal" ones are 9.
        self.actions = (
            [ale_py.Action(i) for i in range(18)]
            if full_action_space or self._config.full_action_space
            else list(self._ale.getMinimalActionSet())
        )
        self.action_space = gymnasium.spaces.Discrete(len(self.actions))
        height, width = self._ale.getScreenDims()
        channels = 3 if self._format.colour else 1
        wrong_gray = env.spec is not None and env.spec.kwargs["game"] in WRONG_GRAY
        # Whether pictures are the luminance of screens in colour.
        self._luminance = wrong_gray and not self._format.colour
        colour = self._format.colour or self._luminance
        shape = (2, height, width, 3) if colour else (2, height, width)
        self._screens = np.zeros(shape, np.uint8)
        self._get_screen = self._ale.getScreenRGB if colour else self._ale.getScreenGrayscale
        # The same two in colour, if anybody is to see them.
        colours = 2 if env.render_mode == "rgb_array" else 0
        self._colour_screens = np.zeros((colours, height, width, 3), np.uint8)
        self.metadata = {**env.metadata, "render_fps": EMULATOR_FPS / FRAME_SKIP}
        # [picture, channel, row, column]
        self._stack = np.zeros((self._format.num_pictures, channels, *size), np.uint8)
        self.observation_space = gymnasium.spaces.Box(0, 255, self._observation().shape, np.uint8)
        # By the game's own actions: agents with all 18 see the same game.
        has_fire = ale_py.Action.FIRE in self._ale.getMinimalActionSet()
        self._fire_on_reset = self._config.fire_on_reset and has_fire
        self._lives = 0
        self._life_lost = False
        self._pending_reward = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts the next life where only a life was lost, else (and with ``seed``) a new game."""
        if not self._life_lost or seed is not None:
            self._start_game(seed, options)
        self._life_lost = False
        self._start_life()
        self._lives = self._ale.lives()
        return self._observation(), {"lives": self._lives}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one agent step: four emulator frames of ``action``."""
        reward = self._pending_reward + self._advance(self.actions[action])
        self._pending_reward = 0.0
        terminated = self._ale.game_over(with_truncation=False)
        truncated = self._ale.game_truncated()
        game_over = terminated or truncated
        lives = self._ale.lives()
        # At 0 lives some games continue for a moment: then the game's end counts.
        if self._config.episodic_life and 0 < lives < self._lives and not game_over:
            if self._full_games:
                self._start_life()
            else:
                self._life_lost = terminated = True
        self._lives = lives
        info = {"lives": lives, "game_over": game_over}
        return self._observation(), reward, terminated, truncated and not terminated, info

    def render(self) -> Any:
        """Returns the newest plane in colour and full size, with ``render_mode="rgb_array"``."""
        if len(self._colour_screens):
            return self._colour_screens.max(axis=0)
        return self.env.render()

    def _start_life(self) -> None:
        if self._fire_on_reset:
            self._pending_reward += self._advance(ale_py.Action.FIRE)

    def _start_game(self, seed: int | None, options: dict[str, Any] | None) -> None:
        self.env.reset(seed=seed, options=options)
        self._pending_reward = 0.0
        if self._config.noop_max > 0:
            for _ in range(int(self.env.unwrapped.np_random.integers(self._config.noop_max)) + 1):
                self._pending_reward += self._ale.act(ale_py.Action.NOOP)
                if self._ale.game_over():
                    self.env.reset()
                    self._pending_reward = 0.0
        self._draw(0)
        self._draw(1)
        self._stack[:] = self._picture(self._screens[0])

    def _advance(self, action: Any) -> float:
        """Runs the emulator for one agent step and pushes its picture; returns the reward."""
        act = self._ale.act
        reward = 0.0
        for frames_left in reversed(range(FRAME_SKIP)):
            reward += act(action)
            is_over = self._ale.game_over()
            if frames_left == 1 or (is_over and frames_left > 1):
                self._draw(1)
            if frames_left == 0 or is_over:
                self._draw(0)
            if is_over:
                break
        self._stack[:-1] = self._stack[1:]
        # Sprites that a game draws in every second frame only are in one of the two.
        cv2.max(self._screens[0], self._screens[1], dst=self._screens[0])
        self._stack[-1] = self._picture(self._screens[0])
        return reward

    def _draw(self, index: int) -> None:
        """Takes the emulator's screen as one of the two that make a picture."""
        self._get_screen(self._screens[index])
        if len(self._colour_screens):
            self._ale.getScreenRGB(self._colour_screens[index])

    def _picture(self, screen: np.ndarray) -> np.ndarray:
        """Makes a picture ``[channel, row, column]`` of a screen."""
        if self._luminance:
            screen = cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY)
        height, width = self._stack.shape[2:]
        screen = cv2.resize(screen, (width, height), interpolation=cv2.INTER_AREA)
        return np.moveaxis(screen, 2, 0) if screen.ndim == 3 else screen

    def _observation(self) -> np.ndarray:
        pictures, channels, height, width = self._stack.shape
        return self._stack.reshape(pictures * channels, height, width).copy()
