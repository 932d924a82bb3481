"""Whether Triton kernels can run here, and loading them. ``launch`` needs Triton, this module does not."""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from pcmcnet.layers.transforms import needs_plain_operators


@cache
def has_triton() -> bool:
    """Tell whether Triton is installed, without loading it."""
    return find_spec("triton") is not None


def runs_kernels(given: Tensor) -> bool:
    """Tell whether small passes over a tensor have kernels here; the compiler of torch makes its own."""
    return given.device.type == "cuda" and has_triton() and not needs_plain_operators(given)


def load_kernels() -> None:
    """Load what the first kernels wait for, which takes a second or two: driver, products, Triton and its compiler."""
    if has_triton() and torch.cuda.is_available():
        from pcmcnet.layers.likelihood import triton_logs

        some = torch.ones(16, 16, device="cuda")
        torch.mm(some, some)
        triton_logs.compile_one()
