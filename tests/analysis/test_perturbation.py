"""Saliency against a plain loop after the paper, and on networks whose interests are known."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

from torchbeast.analysis.overlays import enlarge, normalize
from torchbeast.analysis.perturbation import PerturbationSaliency
from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent, AgentConfig, make_agent


def observe(frame, last_action=0):
    one = torch.zeros(1, 1)
    return EnvOutput(
        frame=torch.as_tensor(frame, dtype=torch.uint8).view(1, 1, *frame.shape),
        reward=one,
        done=one.bool(),
        task=one.int(),
        episode_step=one.int(),
        episode_return=one,
        truncated=one.bool(),
        game_over=one.bool(),
        last_action=one.long() + last_action,
    )


def random_frame(shape=(4, 84, 84)):
    return np.random.default_rng(0).integers(256, size=shape)


class Patch(Agent):
    """Its logits and values are pixels of one patch."""

    def __init__(self, config, rows, columns):
        super().__init__(config)
        self.rows, self.columns = rows, columns
        size = (
            config.observation_shape[0] * (rows.stop - rows.start) * (columns.stop - columns.start)
        )
        self.build_heads(size, 0, 0)
        nn.init.normal_(self.policy.weight)

    def encode(self, frames):
        return frames[:, :, self.rows, self.columns].flatten(1)


def test_equals_a_plain_loop_after_the_paper():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", use_lstm=True)).eval()
    frame = random_frame()
    state = tuple(torch.randn_like(s) for s in agent.initial_state(1))
    result = PerturbationSaliency(agent, 0, density=20, radius=5, batch_size=7)(
        observe(frame), state
    )
    assert result.policy.shape == result.value.shape == (5, 5)

    inputs = observe(frame)._asdict()
    blurred = np.stack([gaussian_filter(plane.astype(float), 3) for plane in frame])
    with torch.no_grad():
        before, _ = agent(inputs, state)
        for i in range(5):
            for j in range(5):
                mask = np.zeros((84, 84))
                mask[20 * i, 20 * j] = 1
                rows, columns = np.mgrid[:84, :84]
                square = (rows - 20 * i) ** 2 + (columns - 20 * j) ** 2
                mask = np.exp(-square / (2 * 5**2))
                perturbed = frame * (1 - mask) + blurred * mask
                inputs["frame"] = torch.tensor(perturbed, dtype=torch.float32).view(1, 1, 4, 84, 84)
                after, _ = agent(inputs, state)
                policy = 0.5 * (after.policy_logits - before.policy_logits).square().sum()
                value = 0.5 * (after.baseline - before.baseline).square().sum()
                assert result.policy[i, j] == pytest.approx(float(policy), rel=1e-2, abs=1e-9)
                assert result.value[i, j] == pytest.approx(float(value), rel=1e-2, abs=1e-9)


@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 210, 160), (12, 42, 60)])
def test_a_patch_lights_up_and_nothing_else(shape):
    torch.manual_seed(0)
    rows, columns = slice(shape[1] // 2, shape[1] // 2 + 4), slice(10, 14)
    agent = Patch(AgentConfig(observation_shape=shape), rows, columns).eval()
    result = PerturbationSaliency(agent, 0, density=2, radius=1)(observe(random_frame(shape)), ())
    for scores in result:
        screen = normalize(enlarge(scores, 210, 160))
        # The patch on the screen, and as far around it as a mask reaches.
        reach = 6
        top, bottom = (
            (n + side * reach) * 210 / shape[1] for n, side in ((rows.start, -1), (rows.stop, 1))
        )
        left, right = (
            (n + side * reach) * 160 / shape[2]
            for n, side in ((columns.start, -1), (columns.stop, 1))
        )
        lit_rows, lit_columns = np.nonzero(screen > 1e-3)
        assert top <= lit_rows.min() <= lit_rows.max() <= bottom
        assert max(0, left) <= lit_columns.min() <= lit_columns.max() <= right
        peak_row, peak_column = np.unravel_index(screen.argmax(), screen.shape)
        assert rows.start - 2 <= peak_row * shape[1] / 210 <= rows.stop + 2
        assert columns.start - 2 <= peak_column * shape[2] / 160 <= columns.stop + 2


def test_a_picture_without_influence_gives_a_black_map():
    agent = make_agent(AgentConfig(agent_type="atari")).eval()
    result = PerturbationSaliency(agent, 0, density=30)(observe(np.full((4, 84, 84), 7)), ())
    for scores in result:
        assert np.array_equal(normalize(enlarge(scores, 210, 160)), np.zeros((210, 160)))


def test_the_value_is_that_of_the_games_own_head():
    torch.manual_seed(0)
    config = AgentConfig(agent_type="atari", use_popart=True, tasks=("a", "b"))
    agent = make_agent(config).eval()
    agent.baseline.weight.data[1] = 0
    frame = observe(random_frame())
    first, second = (PerturbationSaliency(agent, task, density=20)(frame, ()) for task in (0, 1))
    assert first.value.max() > 0
    assert second.value.max() == 0
    assert np.array_equal(first.policy, second.policy)


def test_bfloat16_maps_are_close_to_exact_ones():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig()).eval()
    frame = observe(random_frame())
    exact = PerturbationSaliency(agent, 0, density=12)(frame, ())
    agent.compute_dtype = torch.bfloat16
    fast = PerturbationSaliency(agent, 0, density=12)(frame, ())
    correlation = np.corrcoef(exact.policy.ravel(), fast.policy.ravel())[0, 1]
    assert correlation > 0.8


def test_enlarging_puts_a_cell_where_its_share_of_the_screen_is():
    scores = np.zeros((42, 42), np.float32)
    scores[10, 30] = 1
    screen = enlarge(scores, 210, 168)
    assert screen.shape == (210, 168)
    rows, columns = np.nonzero(screen > 0.5)
    assert rows.mean() == pytest.approx(10.5 * 5 - 0.5)
    assert columns.mean() == pytest.approx(30.5 * 4 - 0.5)
