import io
import sys

import pytest
import torch

from torchbeast.runtime import precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no file tells")
@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ("flags : fpu avx2 avx512f", torch.float32),
        ("flags : fpu avx512f avx512_bf16", torch.bfloat16),
        ("Features : fp asimd bf16", torch.bfloat16),
        ("", torch.float32),
    ],
)
def test_a_cpu_computes_in_bfloat16_if_it_has_instructions_for_it(monkeypatch, flags, dtype):
    text = f"processor : 0\n{flags}\n"
    monkeypatch.setattr(precision, "open", lambda _: io.StringIO(text), raising=False)
    assert precision.choose_dtype("auto", CPU) == dtype
    assert precision.choose_dtype("float32", CPU) == torch.float32


@pytest.mark.parametrize(
    ("capability", "dtype"), [((7, 5), torch.float32), ((8, 0), torch.bfloat16)]
)
def test_a_gpu_computes_in_bfloat16_from_ampere_on(monkeypatch, capability, dtype):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert precision.choose_dtype("auto", CUDA) == dtype
