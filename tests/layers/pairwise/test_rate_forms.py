"""The number type of products over pairs."""

import pytest
import torch

from pcmcnet.layers.pairwise import Precision, compute_dtype


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_a_cpu_uses_bfloat16_only_on_request(precision: Precision, dtype: torch.dtype) -> None:
    assert compute_dtype(precision, torch.device("cpu"), (512, 512)) == dtype


@pytest.mark.parametrize(
    ("widths", "dtype"), [((512, 128), torch.bfloat16), ((512, 64), torch.float32), ((), torch.float32)]
)
def test_a_gpu_uses_bfloat16_for_wide_layers(widths: tuple[int, ...], dtype: torch.dtype) -> None:
    assert compute_dtype("auto", torch.device("cuda"), widths) == dtype
    assert compute_dtype("float32", torch.device("cuda"), widths) == torch.float32
