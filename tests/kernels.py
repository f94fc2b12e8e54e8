"""What tests of the compiled kernels share."""

import pytest

from torchbeast.runtime import kernels

HAS_KERNELS = kernels.compiled() is not None
needs_kernels = pytest.mark.skipif(
    not HAS_KERNELS, reason="no compiled modules, or a processor without AVX-512"
)

needs_amx = pytest.mark.skipif(
    not HAS_KERNELS or not kernels.compiled().has_amx(),
    reason="no compiled modules, or a processor without AMX",
)


def count_calls(monkeypatch, name):
    """A list that grows with each call of a kernel."""
    calls = []
    kernel = getattr(kernels.compiled(), name)
    monkeypatch.setattr(kernels.compiled(), name, lambda *args: calls.append(kernel(*args)))
    return calls
