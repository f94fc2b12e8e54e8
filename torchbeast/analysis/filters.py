"""How alike the convolution filters of two ResNet agents are.

Three ways to pair the filters of a layer: in order; one to one so that the distance is least, each
layer for itself; and one to one with permutations carried through the network (weight matching,
algorithm 1 of Ainsworth et al. 2022, "Git Re-Basin", arXiv:2209.04836), since a filter that has
moved is read from another input channel by the next layer.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from torchbeast.models import Agent

SECTIONS = 3
MAX_SWEEPS = 100
STARTS = 20  # The best result is taken.

# By the name of the layer: [O, I, k, k] of a convolution, [F, C, h * w] of "fc", if it is known.
Weights = dict[str, np.ndarray]


class Distance(NamedTuple):
    """How far apart the filters of two layers are.

    Attributes:
        sum: of squared differences.
        mean: the same per filter.
        relative: the sum divided by both layers' sums of squares. 0: equal; 1: unrelated; 2: each
            other's negative. Layers of another scale can be compared.
    """

    sum: float
    mean: float
    relative: float


class Layer(NamedTuple):
    """A layer and the permutations that act on its output and its input channels."""

    name: str
    module: str
    output: str
    input: str | None

    @property
    def parameter(self) -> str:
        """The name of its weights in a state dict."""
        return f"{self.module}.weight"


def _layers() -> list[Layer]:
    layers = []
    stream: str | None = None
    for i in range(SECTIONS):
        # All that is added to one residual stream has to be permuted alike.
        layers.append(Layer(f"feat_conv{i}", f"feat_convs.{i}.0", f"stream{i}", stream))
        stream = f"stream{i}"
        for block in (1, 2):
            inner = f"inner{block}_{i}"
            for position, output, source in ((1, inner, stream), (3, stream, inner)):
                module = f"resnet{block}.{i}.{position}"
                layers.append(Layer(module.replace(".", "_"), module, output, source))
    return layers


# In the order of the data: 15 convolutions.
LAYERS = _layers()
LAYER_NAMES = [layer.name for layer in LAYERS]
# The layer behind them, which a permutation of the last channels changes, too.
FC = Layer("fc", "fc", "fc", LAYERS[-1].output)


def only_filters(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the convolutions of a ResNet's state dict, weights and biases.

    These are all that a copy of a shipped agent from within its training has.

    Raises:
        KeyError: it is another network's.
    """
    names = [f"{layer.module}.{kind}" for layer in LAYERS for kind in ("weight", "bias")]
    return {name: state[name] for name in names}


def find_layer(agent: Agent, name: str) -> nn.Conv2d:
    """Finds the convolution called ``name`` in ``LAYER_NAMES``."""
    (layer,) = (layer for layer in LAYERS if layer.name == name)
    module = agent.get_submodule(layer.module)
    assert isinstance(module, nn.Conv2d)
    return module


def read_weights(state: dict[str, Tensor]) -> Weights:
    """Reads the filters from a state dict of a ResNet. KeyError if it is another network's."""
    weights = {layer.name: state[layer.parameter].double().numpy() for layer in LAYERS}
    if FC.parameter in state:
        fc = state[FC.parameter].double().numpy()
        weights[FC.name] = fc.reshape(len(fc), len(weights[LAYERS[-1].name]), -1)
    return weights


def pairwise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Computes the squared distances ``[O, O]`` of all filters of ``a`` from all of ``b``."""
    return cdist(a.reshape(len(a), -1), b.reshape(len(b), -1), "sqeuclidean")


def in_order(a: np.ndarray, b: np.ndarray) -> Distance:
    """Measures the distance of two layers ``[O, I, k, k]``, filter ``i`` to filter ``i``."""
    return _total(np.square(a - b).reshape(len(a), -1).sum(axis=1), a, b)


def optimal(a: np.ndarray, b: np.ndarray) -> Distance:
    """Measures the distance of two layers under the best one-to-one matching of their filters."""
    distances = pairwise(a, b)
    return _total(distances[linear_sum_assignment(distances)], a, b)


def kernels(layer: np.ndarray) -> np.ndarray:
    """Returns the kernels of a layer ``[O, I, k, k]`` as filters of one channel.

    Their shape is ``[O * I, 1, k, k]``.
    """
    return layer.reshape(-1, 1, *layer.shape[2:])


def comparable(a: Weights, b: Weights) -> tuple[Weights, Weights]:
    """Returns the layers that both have in the same shape.

    Agents that see other frames differ in the first and in "fc"; a copy of filters has no "fc".
    """
    names = [name for name in a if name in b and a[name].shape == b[name].shape]
    return {name: a[name] for name in names}, {name: b[name] for name in names}


def match_weights(a: Weights, b: Weights, starts: int = STARTS) -> dict[str, np.ndarray]:
    """Finds permutations of ``b``'s channels, by name, that make the whole network most like ``a``.

    ``permutation[i]`` is the channel of ``b`` that takes place ``i``. Coordinate descent: each
    permutation in turn is the best one given the others, until none changes. It ends in a local
    optimum, so the best of several ``starts`` is chosen: the given order, then random ones. A layer
    that is not among the weights has no say.
    """
    # Single precision finds as good permutations in half the time. Distances are in double.
    a, b = ({name: w.astype(np.float32) for name, w in weights.items()} for weights in (a, b))
    sizes = {layer.output: len(a[layer.name]) for layer in _present(a)}
    rng = np.random.default_rng(0)
    found = []
    for start in range(starts):
        order = rng.permutation if start else np.arange
        found.append(_descend(a, b, {name: order(size) for name, size in sizes.items()}, rng))
    return max(found, key=lambda permutations: _agreement(a, permute(b, permutations)))


def _descend(
    a: Weights, b: Weights, permutations: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Improves ``permutations`` one at a time until none changes."""
    neighbours = _neighbours(a)
    stale = set(permutations)  # Those whose neighbours have changed since they were chosen.
    for _ in range(MAX_SWEEPS):
        for name in rng.permutation(list(permutations)).tolist():
            if name not in stale:
                continue
            stale.remove(name)
            similarity = _similarity(a, b, permutations, name)
            best = linear_sum_assignment(similarity, maximize=True)[1]
            gain = similarity[np.arange(len(best)), best].sum(dtype=np.float64)
            before = similarity[np.arange(len(best)), permutations[name]].sum(dtype=np.float64)
            if gain > before + 1e-6 * max(1.0, abs(before)):
                permutations[name] = best
                stale |= neighbours[name]
        if not stale:
            break
    return permutations


def _agreement(a: Weights, b: Weights) -> float:
    """Sums the products of all weights: the larger, the smaller the distance of the networks."""
    return float(sum((a[name] * b[name]).sum(dtype=np.float64) for name in a))


def permute(weights: Weights, permutations: dict[str, np.ndarray]) -> Weights:
    """Reorders channels consistently: each layer's filters as the next one's inputs."""
    result = {}
    for layer in _present(weights):
        w = weights[layer.name][permutations[layer.output]]
        result[layer.name] = w if layer.input is None else w[:, permutations[layer.input]]
    return result


def carried(a: Weights, b: Weights) -> dict[str, Distance]:
    """Measures each layer's distance, with permutations carried through the network."""
    matched = permute(b, match_weights(a, b))
    return {name: in_order(a[name], matched[name]) for name in LAYER_NAMES if name in a}


def _neighbours(weights: Weights) -> dict[str, set[str]]:
    """By permutation, the others that act on the same layers."""
    result: defaultdict[str, set[str]] = defaultdict(set)
    for layer in _present(weights):
        if layer.input is not None:
            result[layer.output].add(layer.input)
            result[layer.input].add(layer.output)
    return result


def _similarity(
    a: Weights, b: Weights, permutations: dict[str, np.ndarray], name: str
) -> np.ndarray:
    """Inner products ``[O, O]`` that permutation ``name`` decides about, given the others."""
    parts = []
    for layer in _present(a):
        wa, wb = a[layer.name], b[layer.name]
        if layer.output == name:
            parts.append((wa, wb if layer.input is None else wb[:, permutations[layer.input]]))
        if layer.input == name:
            parts.append((wa.swapaxes(0, 1), wb[permutations[layer.output]].swapaxes(0, 1)))
    return sum(x.reshape(len(x), -1) @ y.reshape(len(y), -1).T for x, y in parts)


def _present(weights: Weights) -> list[Layer]:
    return [layer for layer in (*LAYERS, FC) if layer.name in weights]


def _total(distances: np.ndarray, a: np.ndarray, b: np.ndarray) -> Distance:
    total = float(distances.sum())
    squares = float(np.square(a).sum() + np.square(b).sum())
    return Distance(total, float(distances.mean()), total / squares if squares > 0 else 0.0)
