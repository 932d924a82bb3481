"""Kernels in Triton, for CUDA devices. The other modules of this package are imported where Triton is there alone."""

from functools import cache
from importlib.util import find_spec


@cache
def has_triton() -> bool:
    """Tell whether Triton is installed, without loading it."""
    return find_spec("triton") is not None
