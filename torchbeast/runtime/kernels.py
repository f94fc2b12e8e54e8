"""The compiled kernels, where this machine can run them."""

from __future__ import annotations

import functools
from types import ModuleType


@functools.cache
def compiled() -> ModuleType | None:
    """Returns the module that has the compiled kernels; None where they cannot run.

    They need the compiled modules and a processor with AVX-512.
    """
    try:
        from libtorchbeast import _C
    except ImportError:
        return None
    return _C if _C.has_kernels() else None
