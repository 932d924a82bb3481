"""Whether Triton kernels can run here, and getting ready for them. ``launch`` needs Triton, this module does not."""

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
            from pcmcnet.layers.likelihood import triton_logs

            triton_logs.compile_one()
