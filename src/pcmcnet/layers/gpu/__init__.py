"""Kernels in Triton, for CUDA devices. The other modules of this package are imported where Triton is there alone."""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


@cache
def has_triton() -> bool:
    """Tell whether Triton is installed, without loading it."""
    return find_spec("triton") is not None


def runs_kernels(given: Tensor) -> bool:
    """Tell whether small passes over a tensor have kernels here; the compiler of torch makes its own."""
    return given.device.type == "cuda" and has_triton() and not torch.compiler.is_compiling()
