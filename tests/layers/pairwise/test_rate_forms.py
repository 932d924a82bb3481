"""Which number type the products over pairs have."""

import pytest
import torch

from pcmcnet.layers.pairwise import Precision, compute_dtype


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_on_a_cpu_bfloat16_is_used_when_asked_for(precision: Precision, dtype: torch.dtype) -> None:
    assert compute_dtype(precision, torch.device("cpu"), (512, 512)) == dtype


@pytest.mark.parametrize(
    ("widths", "dtype"), [((512, 128), torch.bfloat16), ((512, 64), torch.float32), ((), torch.float32)]
)
def test_on_a_gpu_wide_layers_are_multiplied_in_bfloat16(widths: tuple[int, ...], dtype: torch.dtype) -> None:
    assert compute_dtype("auto", torch.device("cuda"), widths) == dtype
    assert compute_dtype("float32", torch.device("cuda"), widths) == torch.float32
