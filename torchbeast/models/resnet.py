"""The deep residual network of IMPALA (Espeholt et al. 2018, figure 3)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from torchbeast.models.agent import Agent, AgentConfig, conv_output_size
from torchbeast.models.initialisation import RELU_GAIN, orthogonal_
from torchbeast.models.kernels import residual_section


class ResNet(Agent):
    """Three sections of a convolution, max pooling and two residual blocks; 15 convolutions.

    Parameter names are those of TorchBeast's checkpoints.
    """

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(config)
        channels, height, width = config.observation_shape
        self.feat_convs = nn.ModuleList()
        self.resnet1 = nn.ModuleList()
        self.resnet2 = nn.ModuleList()
        for num_channels in (16, 32, 32):
            self.feat_convs.append(
                nn.Sequential(
                    nn.Conv2d(channels, num_channels, kernel_size=3, padding=1),
                    nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
                )
            )
            self.resnet1.append(_residual_block(num_channels))
            self.resnet2.append(_residual_block(num_channels))
            channels = num_channels
            height, width = (conv_output_size(n, 3, 2, 1) for n in (height, width))
        self.fc = nn.Linear(channels * height * width, 256)
        self.build_heads(num_features=256, hidden_size=256, num_layers=1)

    def scale_initial_weights(self) -> None:
        """Sets the initial weights of the encoder; see :class:`Agent`."""
        for conv in _convolutions(self.feat_convs):
            orthogonal_(conv, gain=1.0)  # No ReLU before or behind it.
        blocks = [*self.resnet1, *self.resnet2]
        for block in blocks:
            first, second = _convolutions(block)
            orthogonal_(first)
            # All branches together add about as much as there was.
            orthogonal_(second, gain=RELU_GAIN / len(blocks))
        orthogonal_(self.fc)
        super().scale_initial_weights()  # Last: an LSTM takes random numbers.

    def encode(self, frames: Tensor) -> Tensor:
        """Encodes centred frames ``[N, C, H, W]`` to features ``[N, 256]``."""
        x = frames
        for section in zip(self.feat_convs, self.resnet1, self.resnet2, strict=True):
            x = residual_section(x, *section)
        # Flattened in the order of channels, height, width, whatever the memory layout.
        return functional.relu_(self.fc(functional.relu_(x).flatten(1)))


def _residual_block(num_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(num_channels, num_channels, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(num_channels, num_channels, kernel_size=3, padding=1),
    )


def _convolutions(module: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
