"""The shallow network of DQN (Mnih et al. 2015), as TorchBeast's MonoBeast used it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from torchbeast.models.agent import Agent, AgentConfig, conv_output_size
from torchbeast.models.initialisation import orthogonal_


class AtariNet(Agent):
    """Three convolutions (8x8/4, 4x4/2, 3x3/1) and 512 features; sees the last action."""

    uses_last_action = True
    rows_at_once = 320
    learner_share = 0.5
    min_frame_size = 36

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(config)
        channels, height, width = config.observation_shape
        self.conv1 = nn.Conv2d(channels, 32, kernel_size=8, stride=4)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=4, stride=2)
        self.conv3 = nn.Conv2d(64, 64, kernel_size=3, stride=1)
        for kernel, stride in ((8, 4), (4, 2), (3, 1)):
            height, width = (conv_output_size(n, kernel, stride) for n in (height, width))
        self.fc = nn.Linear(64 * height * width, 512)
        # A hidden size of 0: the LSTM is as wide as its input.
        self.build_heads(num_features=512, hidden_size=0, num_layers=2)

    def scale_initial_weights(self) -> None:
        """Sets the initial weights of the encoder; see :class:`Agent`."""
        for layer in (self.conv1, self.conv2, self.conv3, self.fc):
            orthogonal_(layer)
        # Afterwards, because how many random numbers an LSTM takes depends on the games' actions.
        super().scale_initial_weights()

    def encode(self, frames: Tensor) -> Tensor:
        """Encodes centred frames ``[N, C, H, W]`` to features ``[N, F]``."""
        x = functional.relu_(self.conv1(frames))
        x = functional.relu_(self.conv2(x))
        x = functional.relu_(self.conv3(x))
        return functional.relu_(self.fc(x.flatten(1)))
