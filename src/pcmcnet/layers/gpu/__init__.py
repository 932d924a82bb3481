"""Kernels in Triton, for CUDA devices. The other modules of this package are imported where Triton is there alone."""

from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from threading import Thread

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


def get_ready() -> None:
    """Load in a thread what the first kernel waits for, which takes a second or two: driver, Triton, its compiler."""
    Thread(target=_get_ready).start()


def _get_ready() -> None:
    with suppress(Exception):  # whoever needs it next meets the same, and can tell
        if has_triton() and torch.cuda.is_available():
            from pcmcnet.layers.pairwise.triton import rates as around

            around.compile_one()
