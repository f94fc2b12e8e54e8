"""Number formats and memory of the machine's processor, set up once before training."""

from __future__ import annotations

import ctypes
import sys

import torch

# glibc's mallopt parameters.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4


def keep_freed_pages() -> None:
    """Tells the C library to keep freed memory instead of giving it back to the kernel.

    Activations of tens of megabytes are allocated and freed all the time; mapping and faulting
    their pages anew costs as much as the arithmetic on them. Call before torch allocates much.
    glibc only.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # Another C library.
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def use_whole_float32(device: torch.device) -> None:
    """Has a GPU compute with all bits of float32.

    By default cuDNN rounds to ten bits of mantissa in convolutions and in an LSTM over several
    steps, but not in one of a single step: learner and actors would compute different policies.
    """
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Chooses the encoder's number format for ``--precision``; auto: bfloat16 where it is in
    hardware.
    """
    if precision == "auto":
        precision = "bfloat16" if _has_bfloat16(device) else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu" and sys.platform == "linux":
        try:
            with open("/proc/cpuinfo") as file:
                flags = next((line for line in file if line.startswith(("flags", "Features"))), "")
        except OSError:
            return False
        return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(flags.split()))
    return False
