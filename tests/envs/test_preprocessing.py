"""The fused wrapper against the classical chain, one simple wrapper after the other."""

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest

from torchbeast.envs import all_games, make_env
from torchbeast.envs.preprocessing import WRONG_GRAY

AIR_RAID = "AirRaidNoFrameskip-v4"
GAMES = ["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4", AIR_RAID]


def luminance(screen):
    return cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY)


class Classical:
    """DeepMind's preprocessing as the papers put it, on Gymnasium's public interface alone."""

    def __init__(self, game, seed):
        gymnasium.register_envs(ale_py)
        self.env = gymnasium.make(game, obs_type="rgb", disable_env_checker=True)
        self.game = game
        self.has_fire = "FIRE" in self.env.unwrapped.get_action_meanings()
        self.env.reset(seed=seed)
        self.over = True
        self.env.unwrapped.np_random.integers(30)  # make_env starts a game to seed it.

    def picture(self, *screens):
        # In 2019 the maximum was that of colours; this program has it only in AirRaid.
        if self.game == AIR_RAID:
            gray = luminance(np.max(screens, axis=0))
        else:
            gray = np.max([luminance(screen) for screen in screens], axis=0)
        return cv2.resize(gray, (84, 84), interpolation=cv2.INTER_AREA)

    def skip(self, action):
        screens, total = [], 0.0
        for _ in range(4):
            screen, reward, terminated, truncated, info = self.env.step(action)
            screens.append(screen)
            total += reward
            if terminated or truncated:
                break
        self.over = terminated or truncated
        self.planes = [*self.planes[1:], self.picture(*screens[-2:])]
        return total, info["lives"]

    def reset(self):
        if self.over:
            screen, _ = self.env.reset()
            for _ in range(int(self.env.unwrapped.np_random.integers(30)) + 1):
                screen = self.env.step(0)[0]
            self.planes = [self.picture(screen)] * 4
            self.over = False
        self.extra = 0.0
        if self.has_fire:
            self.extra, _ = self.skip(1)
        self.lives = self.env.unwrapped.ale.lives()
        return np.stack(self.planes)

    def step(self, action):
        reward, lives = self.skip(action)
        reward += self.extra
        self.extra = 0.0
        terminated = self.over or 0 < lives < self.lives
        self.lives = lives
        return np.stack(self.planes), reward, terminated, self.over


@pytest.mark.parametrize("game", GAMES)
def test_equals_the_classical_chain_step_by_step(game):
    env, reference = make_env(game, seed=3), Classical(game, seed=3)
    np.testing.assert_array_equal(env.reset()[0], reference.reset())
    rng = np.random.default_rng(0)
    ends = {True: 0, False: 0}
    for step in range(1500):
        if step >= 400 and ends[True]:
            break
        action = int(rng.integers(env.action_space.n))
        observation, reward, terminated, truncated, info = env.step(action)
        expected = reference.step(action)
        assert (reward, terminated, info["game_over"]) == expected[1:]
        assert not truncated
        if terminated:
            ends[info["game_over"]] += 1
            np.testing.assert_array_equal(env.reset()[0], reference.reset())
        else:
            np.testing.assert_array_equal(observation, expected[0])
    assert ends[True] > 0
    assert (ends[False] > 0) == (game not in ("PongNoFrameskip-v4", AIR_RAID))  # No lives.


def test_gray_is_the_luminance_of_the_colours_but_where_it_is_known_not_to_be():
    wrong = set()
    for game in (AIR_RAID, "ALE/LaserGates-v5", *all_games()[::8]):  # All take ten seconds.
        ale = ale_py.ALEInterface()
        rom = gymnasium.spec(game).kwargs["game"]
        ale.loadROM(ale_py.roms.get_rom_path(rom))
        for _ in range(60):
            ale.act(ale_py.Action.FIRE)
            if not np.array_equal(ale.getScreenGrayscale(), luminance(ale.getScreenRGB())):
                wrong.add(rom)
    assert wrong == WRONG_GRAY


def test_a_game_starts_alike_with_all_actions():
    frames = [
        make_env("MsPacmanNoFrameskip-v4", seed=1, full_action_space=full).reset()[0]
        for full in (False, True)  # Its own actions lack FIRE.
    ]
    np.testing.assert_array_equal(*frames)


def test_observations_do_not_change_afterwards():
    env = make_env("PongNoFrameskip-v4", seed=0)
    first, _ = env.reset()
    copy = first.copy()
    for _ in range(5):
        env.step(0)
    np.testing.assert_array_equal(first, copy)


def play(game, steps=300, **options):
    env = make_env(game, **options)
    env.reset()
    rng = np.random.default_rng(1)
    history = []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(
            int(rng.integers(env.action_space.n))
        )
        history.append((observation.sum(), reward, terminated, info["game_over"]))
        if terminated or truncated:
            env.reset()
    return history


def test_seed_decides_everything():
    game = "BreakoutNoFrameskip-v4"
    first, same, other = (play(game, seed=seed) for seed in (1, 1, 2))
    assert first == same != other


def test_full_games_end_with_the_game_and_go_through_the_same_states():
    lives = play("BreakoutNoFrameskip-v4", seed=1)
    games = play("BreakoutNoFrameskip-v4", seed=1, full_games=True)
    assert [(r, g) for _, r, _, g in lives] == [(r, g) for _, r, _, g in games]
    assert any(t and not g for _, _, t, g in lives)
    assert any(g for _, _, _, g in games)
    assert all(t == g for _, _, t, g in games)


def test_machado_actions_are_sticky_and_lives_do_not_end_episodes():
    history = play("BreakoutNoFrameskip-v4", 1000, seed=1, preprocessing="machado")
    assert any(g for _, _, _, g in history)
    assert all(t == g for _, _, t, g in history)
    env = make_env("PongNoFrameskip-v4", preprocessing="machado").unwrapped
    assert env.ale.getFloat("repeat_action_probability") == 0.25


@pytest.mark.parametrize("num_frames", [400, 401, 402, 403])
def test_time_limit_is_a_truncation_with_the_last_picture(num_frames):
    env, endless = (make_env("AsteroidsNoFrameskip-v4", seed=0) for _ in range(2))
    env.unwrapped.ale.setInt("max_num_frames_per_episode", num_frames)
    env.unwrapped.load_game()
    env.reset()
    endless.reset()
    for _ in range(200):
        observation, _, terminated, truncated, info = env.step(0)
        expected = endless.step(0)[0]
        if terminated or truncated:
            break
    assert truncated
    assert not terminated
    assert info["game_over"]
    frames = [e.unwrapped.ale.getEpisodeFrameNumber() for e in (env, endless)]
    if frames[0] == frames[1]:  # A whole step, with sprites that flicker.
        np.testing.assert_array_equal(observation, expected)
    else:
        assert not np.array_equal(observation[-1], observation[-2])  # The game moves on.
    assert env.reset()[0].shape == (4, 84, 84)


def watch(frame_format, **size):
    env = make_env(GAMES[2], frame_format=frame_format, seed=1, render_mode="rgb_array", **size)
    observation = env.reset()[0]
    pictures = [env.render()]
    for step in range(30):
        observation = env.step(step % 6)[0]
        pictures.append(env.render())
    assert env.observation_space.contains(observation)
    return observation, pictures


def test_colour_pictures_are_the_games_own():
    last, pictures = watch("rgb_last", frame_height=210, frame_width=160)
    assert np.array_equal(last, np.moveaxis(pictures[-1], 2, 0))
    stack, _ = watch("rgb_stack", frame_height=210, frame_width=160)
    assert stack.shape == (12, 210, 160)
    for i, picture in enumerate(pictures[-4:]):
        assert np.array_equal(stack[3 * i : 3 * i + 3], np.moveaxis(picture, 2, 0))


def test_colour_pictures_are_resized_like_gray_ones():
    last, pictures = watch("rgb_last", frame_height=42, frame_width=50)
    expected = cv2.resize(pictures[-1], (50, 42), interpolation=cv2.INTER_AREA)
    assert np.array_equal(last, np.moveaxis(expected, 2, 0))
    assert watch("gray_stack", frame_height=42, frame_width=50)[0].shape == (4, 42, 50)
