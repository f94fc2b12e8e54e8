"""What all agents have in common: everything behind the encoder."""

from __future__ import annotations

import abc
import copy
import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn

from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import AgentConfig, AgentOutput, EnvOutput, ShapeError
from torchbeast.models.initialisation import LSTM_GAIN, orthogonal_weight_
from torchbeast.models.normalization import normalize_frames

CoreState = tuple[Tensor, ...]

# Steps from which a fused call of nn.LSTM pays: oneDNN reorders all weights before it computes.
FUSED_STEPS = 8


def run_lstm(
    lstm: nn.LSTM, inputs: Tensor, starts: Tensor, state: CoreState
) -> tuple[Tensor, CoreState]:
    """Runs an LSTM over ``[T, B, F]``, from a zero state where ``starts``.

    One fused call for every long stretch in which no environment's memory is reset: the same result
    as one call per step.

    Args:
        inputs: ``[T, B, F]``.
        starts: bool ``[T, B]``.
        state: hidden and cell state before the first row, ``[L, B, H]`` each.

    Returns:
        The outputs ``[T, B, H]`` and the state after the last row.
    """
    rows = starts.any(dim=1).nonzero().flatten().tolist()
    bounds = sorted({0, *rows, inputs.shape[0]})
    lengths = [end - start for start, end in itertools.pairwise(bounds)]
    keeps = (~starts[bounds[:-1]]).to(inputs.dtype).unsqueeze(-1)
    outputs = []
    for stretch, keep in zip(inputs.split(lengths), keeps, strict=True):
        state = tuple(part * keep for part in state)
        if len(stretch) < FUSED_STEPS:
            output, state = step_lstm(lstm, stretch, state)
        else:
            output, state = lstm(stretch, state)
        outputs.append(output)
    return torch.cat(outputs), state


def step_lstm(lstm: nn.LSTM, inputs: Tensor, state: CoreState) -> tuple[Tensor, CoreState]:
    """Computes what ``lstm(inputs, state)`` does, step by step."""
    hidden, cell = (list(part.unbind()) for part in state)
    outputs = []
    for x in inputs.unbind():
        for layer, weights in enumerate(lstm.all_weights):
            hidden[layer], cell[layer] = torch.lstm_cell(x, (hidden[layer], cell[layer]), *weights)
            x = hidden[layer]
        outputs.append(x)
    return torch.stack(outputs), (torch.stack(hidden), torch.stack(cell))


SMALLEST_FRAME_STD = 16.0  # Grey levels of 256.


class Agent(nn.Module, abc.ABC):
    """Encoder, optional LSTM, policy head, value heads.

    Subclasses build their encoder and call :meth:`build_heads`. Inputs are an ``EnvOutput`` or a
    dict with at least ``frame`` uint8 ``[T, B, C, H, W]``, ``reward`` float32 ``[T, B]`` and
    ``done`` bool ``[T, B]``. An agent of several games needs ``task`` int32 ``[T, B]``, too: the
    index of each row's game in ``config.tasks``.

    ``compute_dtype`` is the precision of the encoder; everything behind it is float32, PopArt's
    heads float64.
    """

    frame_mean: Tensor
    frame_scale: Tensor
    # Whether the core sees a one-hot of the last action, too.
    uses_last_action = False
    # Modules behind the encoder, which compute in float32 whatever ``compute_dtype`` is.
    float32_modules: tuple[str, ...] = ("core", "policy", "baseline")
    # Rows (steps times rollouts) that a CPU's learner thread takes at a time. With fewer, weights
    # pass through its caches often for what is computed with them; with more, activations do.
    rows_at_once = 80
    # Share of a CPU's cores that have a learner thread. Threads divide a batch into parts, and each
    # part has fixed costs: where acting and the games are most of the work, fewer threads do more.
    learner_share = 1.0
    # Height and width that a frame must have.
    min_frame_size = 1
    # Whether ``use_lstm`` gives it a memory. Others have one of their own, or none.
    takes_lstm = True

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype = torch.float32
        self.core: nn.LSTM | None = None
        # The network's input is (frame - mean) * scale, [G, C, H, W] and [G] for G games. The means
        # are channels last in memory, like the frames.
        count, (channels, height, width) = len(config.tasks), config.observation_shape
        mean = torch.zeros(count, height, width, channels).permute(0, 3, 1, 2)
        self.register_buffer("frame_mean", mean)
        self.register_buffer("frame_scale", torch.full((count,), 1.0 / 255.0))

    @abc.abstractmethod
    def encode(self, frames: Tensor) -> Tensor:
        """Encodes centred frames ``[N, C, H, W]``, channels last in memory, to features ``[N,
        F]``.
        """

    def build_heads(self, num_features: int, hidden_size: int, num_layers: int) -> None:
        """Makes ``core``, ``policy`` and ``baseline`` behind ``num_features`` of the encoder."""
        config = self.config
        size = num_features + 1  # The clipped reward.
        if self.uses_last_action:
            size += config.num_actions
        if config.use_lstm:
            self.core = nn.LSTM(size, hidden_size or size, num_layers)
            size = hidden_size or size
        self.build_outputs(size)

    def build_outputs(self, size: int) -> None:
        """Makes ``policy`` and ``baseline`` on ``size`` features."""
        config = self.config
        self.policy = nn.Linear(size, config.num_actions)
        self.baseline: nn.Module
        if config.use_popart:
            self.baseline = PopArtLayer(
                size, len(config.tasks), config.beta, config.beta_per, config.sigma_floor
            )
        else:
            self.baseline = nn.Linear(size, config.num_heads)
        for parameter in self.parameters():
            if parameter.dim() == 4:  # Convolutions are fastest with one layout throughout.
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def scale_initial_weights(self) -> None:
        """Sets initial weights: those of the policy to a tenth, an LSTM's input weights orthogonal.

        Subclasses add their encoder's (:func:`torchbeast.models.initialisation.orthogonal_`).
        """
        with torch.no_grad():
            # Begin close to the uniform policy: large random preferences take long to unlearn.
            self.policy.weight.mul_(0.1)
        if self.core is not None:
            for layer in range(self.core.num_layers):
                orthogonal_weight_(getattr(self.core, f"weight_ih_l{layer}"), LSTM_GAIN)

    def set_frame_statistics(self, mean: Tensor, std: Tensor) -> None:
        """Feeds frames as ``(x - mean) / std`` from now on.

        Of G games ``mean`` is ``[G, C, H, W]`` and ``std`` is ``[G]``.

        ``std`` is taken for at least ``SMALLEST_FRAME_STD``: what random play never showed, say
        another room, would else be dozens of standard deviations.
        """
        self.frame_mean.copy_(mean)
        self.frame_scale.copy_(1.0 / std.clamp(min=SMALLEST_FRAME_STD))

    def inference_copy(self, dtype: torch.dtype | None = None) -> Agent:
        """Makes a copy that acts but does not learn, with the encoder's weights in its precision.

        Otherwise every forward pass would convert them anew. ``dtype`` is that precision; by
        default it is this agent's ``compute_dtype``.
        """
        agent = copy.deepcopy(self).requires_grad_(False)
        agent.compute_dtype = dtype or self.compute_dtype
        for name, module in agent.named_children():
            if name not in self.float32_modules:
                for layer in module.modules():
                    if isinstance(layer, nn.Conv2d | nn.Linear):  # What autocast converts.
                        layer.to(agent.compute_dtype)
        return agent

    def initial_state(self, batch_size: int = 1) -> CoreState:
        """Returns the recurrent state at an episode's start; empty without LSTM.

        Leaves ``[L, B, H]``.
        """
        if self.core is None:
            return ()
        shape = (self.core.num_layers, batch_size, self.core.hidden_size)
        device = self.frame_mean.device
        return (torch.zeros(shape, device=device), torch.zeros(shape, device=device))

    def forward(
        self,
        inputs: EnvOutput | dict[str, Any],
        core_state: CoreState = (),
        *,
        sample: bool | None = None,
    ) -> tuple[AgentOutput, CoreState]:
        """Computes one step or a whole rollout.

        Args:
            inputs: leaves ``[T, B, ...]``; see the class.
            core_state: the recurrent state before the first row, from :meth:`initial_state`.
            sample: sample actions from the policy instead of taking the likeliest; by default in
                training mode only.

        Returns:
            The output, leaves ``[T, B, ...]``, and the recurrent state after the last row.

        Raises:
            ShapeError: frames have another shape, or the recurrent state is missing.
            ValueError: an agent of several games was not told which game the rows are of.
        """
        fields = inputs if isinstance(inputs, dict) else inputs._asdict()
        self._check_inputs(fields["frame"], core_state)
        core_output, core_state = self.represent(fields, core_state)
        logits = self.policy(core_output)
        if isinstance(self.baseline, PopArtLayer):
            baseline, normalized = self.baseline(core_output)
        else:
            baseline = normalized = self.baseline(core_output)
        if self.training if sample is None else sample:
            action = torch.multinomial(torch.softmax(logits.detach(), dim=-1), num_samples=1)
        else:
            action = logits.argmax(dim=-1, keepdim=True)
        lead = (*fields["frame"].shape[:2], -1)
        output = AgentOutput(
            action.view(lead), logits.view(lead), baseline.view(lead), normalized.view(lead)
        )
        return output, core_state

    def _check_inputs(self, frame: Tensor, core_state: CoreState) -> None:
        """Raises ShapeError if frames or the recurrent state are not those of this agent."""
        expected = self.config.observation_shape
        if frame.dim() != 5 or tuple(frame.shape[2:]) != expected:
            shape = ", ".join(map(str, ("T", "B", *expected)))
            raise ShapeError(f"frame must be [{shape}], got {list(frame.shape)}")
        if not core_state and self.initial_state():
            raise ShapeError("this agent has a memory: give it agent.initial_state(B)")

    def represent(self, fields: dict[str, Any], core_state: CoreState) -> tuple[Tensor, CoreState]:
        """Computes the input of policy and value, ``[T * B, F]``, and the next recurrent state."""
        features = self.encode_frames(fields["frame"].flatten(0, 1), fields.get("task"))
        reward, starts = fields["reward"], self.memory_starts(fields)
        parts = [features]
        if self.uses_last_action:
            parts.append(self.one_hot_last_action(fields).to(features))
        parts.append(self.reward_input(reward).to(features))
        core_input = torch.cat(parts, dim=-1)
        if self.core is not None:
            core_output, core_state = run_lstm(
                self.core, core_input.view(*starts.shape, -1), starts, core_state
            )
            return core_output.flatten(0, 1), core_state
        return core_input, core_state

    def reward_input(self, reward: Tensor) -> Tensor:
        """Returns the reward ``[T, B]`` as it enters the network, ``[T * B, 1]``."""
        if self.config.clip_reward_input:
            reward = reward.clamp(-1, 1)
        return reward.reshape(-1, 1)

    def memory_starts(self, fields: dict[str, Any]) -> Tensor:
        """Returns the rows that start with an empty memory, bool ``[T, B]``.

        Without ``game_over`` in the inputs every episode counts as a game.
        """
        done: Tensor = fields["done"]
        game_over, step = fields.get("game_over"), fields.get("episode_step")
        if self.config.lstm_reset != "game" or game_over is None:
            return done
        # In the place of an environment that failed a new one begins, and no game was over.
        return game_over if step is None else game_over | (done & (step == 0))

    def one_hot_last_action(self, fields: dict[str, Any]) -> Tensor:
        """Returns the last action one-hot, ``[T * B, A]``. Raises ValueError if it is missing."""
        last_action = fields.get("last_action")
        if last_action is None:
            raise ValueError("this agent needs last_action, int64 [T, B]: what led to each frame")
        return nn.functional.one_hot(last_action.flatten(), self.config.num_actions)

    def encode_frames(self, frames: Tensor, task: Tensor | None = None) -> Tensor:
        """Computes features, float32, of frames uint8 ``[N, C, H, W]``.

        ``task`` ``[N]`` says of which games they are. Raises ValueError without it for an agent of
        several games, which have means and scales of their own.
        """
        if task is None and len(self.config.tasks) > 1:
            raise ValueError(
                f"This agent plays {len(self.config.tasks)} games: the inputs need 'task', int32 "
                "[T, B], the index of each row's game in agent.config.tasks"
            )
        x = normalize_frames(
            frames,
            self.frame_mean,
            self.frame_scale,
            None if task is None else task.flatten(),
            self.compute_dtype,
        )
        with self.precision(x.device):
            return self.encode(x).to(self.policy.weight.dtype)

    def precision(self, device: torch.device) -> torch.autocast:
        """Makes a context in which layers compute in ``compute_dtype``."""
        dtype = self.compute_dtype
        return torch.autocast(device.type, dtype, enabled=dtype.itemsize == 2)


def conv_output_size(size: int, kernel: int, stride: int, padding: int = 0) -> int:
    """Computes the length of a convolution's output."""
    return math.floor((size + 2 * padding - kernel) / stride) + 1
