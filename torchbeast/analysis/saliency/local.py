"""Encoders that recompute only what a mask can change.

Under a mask an observation changes in a window. Behind every layer only outputs that see this
window change; all others are those of the observation without mask, which are computed once. A
window grows from layer to layer until it is the whole plane.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchbeast.models import Agent, AtariNet, ResNet


class Span(NamedTuple):
    """Rows or columns from ``start`` to before ``stop``."""

    start: int
    stop: int


class Window(NamedTuple):
    """A rectangle of a plane."""

    rows: Span
    columns: Span


class Geometry(NamedTuple):
    """Of a convolution or a pooling."""

    kernel: int
    stride: int
    padding: int

    def outputs(self, span: Span, length: int) -> Span:
        """Returns the outputs, of ``length``, that see inputs of ``span``; at least one."""
        first = -(-(span.start + self.padding - self.kernel + 1) // self.stride)
        last = (span.stop - 1 + self.padding) // self.stride
        # With a stride no output may see the last inputs.
        start = min(max(first, 0), length - 1)
        return Span(start, max(min(last + 1, length), start + 1))

    def inputs(self, span: Span) -> Span:
        """Returns the inputs that outputs of ``span`` see.

        Padding is before 0 and behind the end.
        """
        start = span.start * self.stride - self.padding
        return Span(start, (span.stop - 1) * self.stride - self.padding + self.kernel)


class Plane:
    """A layer's input without mask, ``[1, C, H, W]``, with the layer's padding around it."""

    def __init__(self, values: Tensor, padding: int, fill: float = 0.0) -> None:
        self._padding = padding
        padded = functional.pad(values, (padding,) * 4, value=fill)
        self._padded = padded.contiguous(memory_format=torch.channels_last)

    def paste(self, values: Tensor, window: Window, needed: Window) -> Tensor:
        """Returns the part ``needed`` of the plane under each of N masks.

        Args:
            values: ``[N, C, h, w]``, what has changed.
            window: where it has.
            needed: contains ``window``; may reach into the padding.

        Returns:
            ``[N, C, h', w']``.
        """
        shift = self._padding
        rows, columns = (slice(s.start + shift, s.stop + shift) for s in needed)
        around = self._padded[:, :, rows, columns]
        shape = (len(values), *around.shape[1:])
        result = torch.empty(
            shape,
            dtype=values.dtype,
            device=values.device,
            memory_format=torch.channels_last,
        )
        if window != needed:
            result.copy_(around.expand(shape))
        rows, columns = (
            slice(span.start - outer.start, span.stop - outer.start)
            for span, outer in zip(window, needed, strict=True)
        )
        result[:, :, rows, columns] = values
        return result


class Layer:
    """A convolution or a max pooling whose inputs without mask are known.

    Args:
        module: the layer.
        values: its inputs without mask, ``[1, C, H, W]``.
        relu: the layer sees them through a ReLU.
    """

    def __init__(self, module: nn.Module, values: Tensor, *, relu: bool = False) -> None:
        assert isinstance(module, nn.Conv2d | nn.MaxPool2d)
        self._module, self._relu = module, relu
        kernel, stride, padding = (
            int(size[0] if isinstance(size, tuple) else size)
            for size in (module.kernel_size, module.stride, module.padding)
        )
        self._geometry = Geometry(kernel, stride, padding)
        fill = -torch.inf if isinstance(module, nn.MaxPool2d) else 0.0
        self._plane = Plane(values, padding, fill)
        self._whole = whole_window(values)
        self.output = module(self._show(values))

    def __call__(self, values: Tensor, window: Window) -> Local:
        """The outputs that change where inputs in ``window`` do.

        Args:
            values: ``[N, C, h, w]``, the changed inputs.
            window: where they are.
        """
        if window == self._whole:
            outputs = self._module(self._show(values))
            return Local(outputs, whole_window(outputs), values, window)
        rows, columns = (
            self._geometry.outputs(span, length)
            for span, length in zip(window, self.output.shape[2:], strict=True)
        )
        seen = Window(self._geometry.inputs(rows), self._geometry.inputs(columns))
        around = hull(seen, window)
        inputs = cut(self._plane.paste(values, window, around), seen, around)
        return Local(self._apply(self._show(inputs)), Window(rows, columns), inputs, seen)

    def _show(self, values: Tensor) -> Tensor:
        return functional.relu(values) if self._relu else values

    def _apply(self, inputs: Tensor) -> Tensor:
        """The layer without padding, which the inputs contain."""
        if isinstance(self._module, nn.MaxPool2d):
            return functional.max_pool2d(inputs, self._geometry.kernel, self._geometry.stride)
        return functional.conv2d(
            inputs, self._module.weight, self._module.bias, self._geometry.stride
        )


class Local(NamedTuple):
    """A layer's changed outputs, and the inputs that they were computed from."""

    values: Tensor
    window: Window
    inputs: Tensor
    seen: Window


def whole_window(values: Tensor) -> Window:
    """Returns all of a plane ``[..., H, W]``."""
    height, width = values.shape[-2:]
    return Window(Span(0, height), Span(0, width))


def hull(a: Window, b: Window) -> Window:
    """Returns the smallest window that contains both."""
    rows, columns = (
        Span(min(x.start, y.start), max(x.stop, y.stop)) for x, y in zip(a, b, strict=True)
    )
    return Window(rows, columns)


def cut(values: Tensor, window: Window, outer: Window) -> Tensor:
    """Returns the part ``window`` of values ``[N, C, h, w]`` that lie in ``outer``."""
    rows, columns = (
        slice(span.start - around.start, span.stop - around.start)
        for span, around in zip(window, outer, strict=True)
    )
    return values[:, :, rows, columns]


class LocalEncoder(abc.ABC):
    """Encodes one observation under many masks.

    Args:
        agent: whose encoder.
        frame: the observation without mask, centred and scaled, ``[1, C, H, W]``.
    """

    @abc.abstractmethod
    def __init__(self, agent: Any, frame: Tensor) -> None: ...

    @abc.abstractmethod
    def encode(self, values: Tensor, window: Window) -> Tensor:
        """Computes features ``[N, F]`` of the observation with ``values`` ``[N, C, h, w]`` in
        ``window``.
        """


class LocalResNet(LocalEncoder):
    """:class:`torchbeast.models.ResNet`'s encoder."""

    def __init__(self, agent: ResNet, frame: Tensor) -> None:
        self._fc = agent.fc
        self._sections = []
        x = frame
        for section in zip(agent.feat_convs, agent.resnet1, agent.resnet2, strict=True):
            (first_conv, max_pool), *blocks = ([*part.children()] for part in section)
            conv = Layer(first_conv, x)
            pool = Layer(max_pool, conv.output)
            x = pool.output
            pairs = []
            for _, inner, _, outer in blocks:
                first = Layer(inner, x, relu=True)
                second = Layer(outer, first.output, relu=True)
                x = x + second.output
                pairs.append((first, second))
            self._sections.append((conv, pool, pairs))
        self._last, self._size = Plane(x, 0), whole_window(x)

    def encode(self, values: Tensor, window: Window) -> Tensor:
        """Encodes the values of a window under each mask, to features ``[N, F]``."""
        for conv, pool, pairs in self._sections:
            values, window, *_ = conv(values, window)
            values, window, *_ = pool(values, window)
            for first, second in pairs:
                inner = first(values, window)
                outer = second(inner.values, inner.window)
                # What the second convolution changes lies within what the first one has seen.
                values = outer.values.add_(cut(inner.inputs, outer.window, inner.seen))
                window = outer.window
        whole = self._last.paste(values, window, self._size)
        return functional.relu(self._fc(functional.relu_(whole).flatten(1)))


class LocalAtariNet(LocalEncoder):
    """:class:`torchbeast.models.AtariNet`'s encoder."""

    def __init__(self, agent: AtariNet, frame: Tensor) -> None:
        self._fc = agent.fc
        self._layers = []
        x = frame
        for conv in (agent.conv1, agent.conv2, agent.conv3):
            layer = Layer(conv, x)
            self._layers.append(layer)
            x = functional.relu(layer.output)
        self._last, self._size = Plane(x, 0), whole_window(x)

    def encode(self, values: Tensor, window: Window) -> Tensor:
        """Encodes the values of a window under each mask, to features ``[N, F]``."""
        for layer in self._layers:
            local = layer(values, window)
            values, window = functional.relu_(local.values), local.window
        whole = self._last.paste(values, window, self._size)
        return functional.relu(self._fc(whole.flatten(1)))


def find_encoder(agent: Agent) -> type[LocalEncoder] | None:
    """Returns the local encoder of an agent; None for those whose encoder is not known here."""
    # A subclass may encode otherwise.
    if type(agent) is ResNet:
        return LocalResNet
    return LocalAtariNet if type(agent) is AtariNet else None
