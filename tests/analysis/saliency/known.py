"""Observations, and agents of which is known what they react to."""

import numpy as np
import torch

from torchbeast.analysis.saliency import Perturbation, SaliencyConfig, Step, Subject
from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent, AgentConfig

# Row and column of the top left pixels of patches, far from each other.
PLACES = [(10, 10), (10, 66), (60, 40)]


def observe(frame):
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
        last_action=one.long(),
    )


def random_frame(shape=(4, 84, 84)):
    return np.random.default_rng(0).integers(256, size=shape)


class Patches(Agent):
    """Logit k is the brightness of patch k, the value is that of the last patch.

    Args:
        places: row and column of each patch's top left pixel, one per action.
        size: pixels along a patch's side.
    """

    def __init__(self, places, size=6):
        super().__init__(AgentConfig(num_actions=len(places)))
        self.places, self.size = places, size
        self.build_heads(len(places), 0, 0)
        with torch.no_grad():
            for layer in (self.policy, self.baseline):
                layer.weight.zero_()
                layer.bias.zero_()
            self.policy.weight[:, :-1] = 4 * torch.eye(len(places))
            self.baseline.weight[0, len(places) - 1] = 1

    def encode(self, frames):
        patches = [
            frames[:, :, row : row + self.size, column : column + self.size]
            for row, column in self.places
        ]
        return torch.stack([patch.mean(dim=(1, 2, 3)) for patch in patches], dim=1)

    def bright_frame(self, *chosen):
        """A dark picture whose patches are white; by default all."""
        frame = np.zeros((4, 84, 84), np.uint8)
        for row, column in [self.places[i] for i in chosen] or self.places:
            frame[:, row : row + self.size, column : column + self.size] = 255
        return frame


def make_step(agent, frame, action=0, state=(), density=3):
    """A step at which the agent saw a frame, with maps at every third pixel by default."""
    inputs = observe(frame)
    perturbation = Perturbation(agent, SaliencyConfig(density=density, radius=3))
    names = tuple(f"A{i}" for i in range(agent.config.num_actions))
    return Step(
        step=0,
        picture=np.zeros((210, 160, 3), np.uint8),
        action=action,
        outputs=perturbation(inputs, state),
        inputs=inputs,
        state=state,
        subject=Subject(names, agent.config.tasks, 0, False, "returns²/2"),
        grid=perturbation.grid,
    )
