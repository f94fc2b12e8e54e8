"""The attention-augmented agent (Mott et al. 2019, arXiv:1906.02500)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchbeast.models.agent import Agent, AgentConfig, CoreState, conv_output_size
from torchbeast.models.initialisation import orthogonal_, orthogonal_weight_

NUM_QUERIES = 4
KEY_SIZE, VALUE_SIZE = 8, 120  # Channels of the vision memory that are keys, and values.
BASIS_SIZE = 64  # Channels of the spatial basis.
HIDDEN_SIZE = 256
INITIAL_QUERY = 0.3  # Spread of what the queries begin with: attention to a third of the places.
# The gates of a new LSTM are half open. Its input and its output gate shrink a small signal to a
# quarter, and this restores it.
HALF_OPEN_GAIN = 4.0


class AttentionNet(Agent):
    """Asks the picture questions: queries that depend on the memory of the policy alone.

    Vision (two convolutions and a convolutional LSTM) says what is where. Each query is compared
    with the keys of all places, the softmax over places is the attention, and the answer is the
    mean value under it. A spatial basis, concatenated to keys and values, lets queries ask for
    places and answers tell them. Answers and queries feed the policy's LSTM.

    ``attention`` holds the maps of the last forward pass without gradients, ``[T, B, Q, H, W]``.
    """

    basis: Tensor

    float32_modules = ("query", "answer", "cell", "policy", "baseline")
    rows_at_once = 320
    min_frame_size = 8
    takes_lstm = False

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(config)
        channels, height, width = config.observation_shape
        self.vision = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=8, stride=4, padding=2),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
        )
        for kernel, stride, padding in ((8, 4, 2), (4, 2, 1)):
            height, width = (conv_output_size(n, kernel, stride, padding) for n in (height, width))
        self.memory = ConvLSTM(64, KEY_SIZE + VALUE_SIZE, height, width)
        self.register_buffer("basis", spatial_basis(height, width, BASIS_SIZE), persistent=False)
        query_size, answer_size = KEY_SIZE + BASIS_SIZE, VALUE_SIZE + BASIS_SIZE
        self.query = nn.Sequential(
            nn.Linear(HIDDEN_SIZE, 128), nn.ReLU(), nn.Linear(128, NUM_QUERIES * query_size)
        )
        num_inputs = NUM_QUERIES * (query_size + answer_size) + 1 + config.num_actions
        self.answer = nn.Sequential(
            nn.Linear(num_inputs, 512), nn.ReLU(), nn.Linear(512, HIDDEN_SIZE), nn.ReLU()
        )
        # Called step by step, which a cell does at a fraction of nn.LSTM's cost.
        self.cell = nn.LSTMCell(HIDDEN_SIZE, HIDDEN_SIZE)
        self.build_outputs(HIDDEN_SIZE)
        self.attention: Tensor | None = None

    def scale_initial_weights(self) -> None:
        """Sets the initial weights of vision, queries and answers; see :class:`Agent`."""
        super().scale_initial_weights()
        orthogonal_(self.memory.of_input, HALF_OPEN_GAIN)
        for layer in (*self.vision, *self.query, *self.answer):
            if not isinstance(layer, nn.ReLU):
                orthogonal_(layer)
        orthogonal_weight_(self.cell.weight_ih, HALF_OPEN_GAIN)
        asks, hears = self.query[2], self.answer[0]
        assert isinstance(asks, nn.Linear)
        assert isinstance(hears, nn.Linear)
        with torch.no_grad():
            # At the beginning each query attends to different places. If all queries attended
            # to all places equally, a ball would be a hundredth of every answer.
            asks.bias.normal_(std=INITIAL_QUERY)
            # Because an average over many places changes little when one place changes.
            hears.weight.mul_(2.0)

    def encode(self, frames: Tensor) -> Tensor:
        """Encodes centred frames ``[N, C, H, W]`` to features ``[N, C', H', W']``."""
        return self.vision(frames)

    def initial_state(self, batch_size: int = 1) -> CoreState:
        """Returns zeros: of the vision, ``[1, B, C, H, W]`` twice, and of the policy, ``[1, B, F]``
        twice.
        """
        vision = (1, batch_size, *self.memory.shape)
        policy = (1, batch_size, HIDDEN_SIZE)
        device = self.frame_mean.device
        return tuple(torch.zeros(s, device=device) for s in (vision, vision, policy, policy))

    def represent(self, fields: dict[str, Any], core_state: CoreState) -> tuple[Tensor, CoreState]:
        """Computes the input of policy and value, step by step; see :class:`Agent`."""
        frame, reward, starts = fields["frame"], fields["reward"], self.memory_starts(fields)
        num_steps, batch_size = starts.shape
        pictures = self.encode_frames(frame.flatten(0, 1), fields.get("task"))
        pictures = pictures.view(num_steps, batch_size, *pictures.shape[1:])
        # What is seen does not depend on what is asked: the memory of all steps comes first.
        with self.precision(pictures.device):
            seen, vision_state = self.memory(pictures, starts, (core_state[0][0], core_state[1][0]))
        parts = [self.reward_input(reward), self.one_hot_last_action(fields)]
        extra = torch.cat([part.to(pictures) for part in parts], dim=1)
        extra = extra.view(num_steps, batch_size, -1)

        hidden, cell = core_state[2][0], core_state[3][0]
        keeps = (~starts).to(pictures).unsqueeze(-1)
        outputs, maps = [], []
        # Taken apart once: the gradient of each index would be as large as the whole.
        steps = (x.unbind() for x in (*self._places(seen), extra, keeps))
        for keys, values, known, keep in zip(*steps, strict=True):
            hidden, cell = hidden * keep, cell * keep
            queries = self.query(hidden)
            attention, answers = attend(keys, values, queries)
            inputs = torch.cat([answers.flatten(1), queries, known], dim=1)
            hidden, cell = self.cell(self.answer(inputs), (hidden, cell))
            outputs.append(hidden)
            maps.append(attention)
        if not torch.is_grad_enabled():  # The learner's threads share the agent.
            self.attention = torch.stack(maps).unflatten(-1, self.memory.shape[1:])
        state = tuple(part.unsqueeze(0) for part in (*vision_state, hidden, cell))
        return torch.cat(outputs), state

    def _places(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Splits the memory ``[T, B, C, H, W]`` of ``N`` places, each with the basis, into keys
        ``[T, B, N, K]`` and values ``[T, B, N, V]``.
        """
        num_steps, batch_size = seen.shape[:2]
        flat = seen.flatten(3).transpose(2, 3)  # [T, B, H * W, C]
        basis = self.basis.expand(num_steps, batch_size, -1, -1)
        keys, values = flat.split([KEY_SIZE, VALUE_SIZE], dim=-1)
        return torch.cat([keys, basis], dim=-1), torch.cat([values, basis], dim=-1)


def attend(keys: Tensor, values: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Computes attention maps ``[B, Q, N]`` and answers ``[B, Q, V]`` of queries ``[B, Q * K]``."""
    queries = queries.view(len(queries), -1, keys.shape[-1])
    attention = functional.softmax(queries @ keys.transpose(1, 2), dim=-1)
    return attention, attention @ values


def spatial_basis(height: int, width: int, size: int) -> Tensor:
    """Computes products of cosines along both axes, ``[H * W, size]`` (equation 3 of the paper)."""
    per_axis = math.isqrt(size)
    frequencies = torch.arange(1, per_axis + 1) * math.pi

    def axis(length: int) -> Tensor:
        positions = (torch.arange(length) + 0.5) / length
        return torch.cos(positions.unsqueeze(1) * frequencies)  # [length, per_axis]

    basis = torch.einsum("hi,wj->hwij", axis(height), axis(width))
    return basis.reshape(height * width, per_axis**2)


class ConvLSTM(nn.Module):
    """A convolutional LSTM with peepholes (Shi et al. 2015, equation 3)."""

    def __init__(self, num_inputs: int, num_channels: int, height: int, width: int) -> None:
        super().__init__()
        self.shape = (num_channels, height, width)
        self.of_input = nn.Conv2d(num_inputs, 4 * num_channels, kernel_size=3, padding=1)
        self.of_hidden = nn.Conv2d(
            num_channels, 4 * num_channels, kernel_size=3, padding=1, bias=False
        )
        # One for the input, the forget and the output gate.
        self.peepholes = nn.Parameter(torch.zeros(3, *self.shape))

    def forward(
        self, inputs: Tensor, starts: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Outputs ``[T, B, C, H, W]`` for inputs likewise; from a zero state where ``starts``.

        Convolutions may be of lower precision (autocast); what is remembered is float32.
        """
        hidden, cell = state
        gates_of_input = self.of_input(inputs.flatten(0, 1)).to(cell.dtype)
        gates_of_input = gates_of_input.unflatten(0, inputs.shape[:2])
        outputs = []
        for gates, start in zip(gates_of_input.unbind(), starts.unbind(), strict=True):
            keep = (~start).to(gates).view(-1, 1, 1, 1)
            hidden, cell = hidden * keep, cell * keep
            i, f, g, o = (gates + self.of_hidden(hidden)).chunk(4, dim=1)
            i = torch.sigmoid(i + self.peepholes[0] * cell)
            f = torch.sigmoid(f + self.peepholes[1] * cell)
            cell = f * cell + i * torch.tanh(g)
            o = torch.sigmoid(o + self.peepholes[2] * cell)
            hidden = o * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs), (hidden, cell)
