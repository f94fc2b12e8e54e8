"""What tests of the compiled kernels share."""

import pytest

from torchbeast.models import kernels

HAS_KERNELS = kernels.compiled() is not None
needs_kernels = pytest.mark.skipif(
    not HAS_KERNELS, reason="no compiled modules, or a processor without AVX512-BF16"
)


def count_calls(monkeypatch, name):
    """A list that grows with each call of a kernel."""
    calls = []
    kernel = getattr(kernels.compiled(), name)
    monkeypatch.setattr(kernels.compiled(), name, lambda *args: calls.append(kernel(*args)))
    return calls
