"""How to compute the pairs on a CUDA device, and with which kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
import triton
from torch import Tensor

KEPT = 3 << 30  # bytes kept from the forward to the backward pass, at most; or more where a device has much memory
PIECE = 1 << 19  # pairs of a piece
GLUON = ("3.6.",)  # versions of Triton with the language that the kernels for Hopper were run in

Layer = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,)


@dataclass(frozen=True)
class FusedOptions:
    """How to compute the pairs: activation by name, dropout, type of the products, and the budgets.

    ``kept`` is how many bytes may be kept from the forward to the backward pass, and None for what suits the device.
    """

    activation: str
    dropout: float
    dtype: torch.dtype
    kept: int | None = None
    piece: int = PIECE


@cache
def kept_bytes(device: torch.device) -> int:
    """Return how many bytes to keep from the forward to the backward pass, at most."""
    total = int(torch.cuda.get_device_properties(device).total_memory)
    return max(total // 24, min(KEPT, total // 4))


@cache
def hopper_kernels(device: torch.device) -> ModuleType | None:
    """Load the kernels for Hopper, where they can run."""
    known = triton.__version__.startswith(GLUON) and find_spec("triton.experimental.gluon") is not None
    if not known or torch.cuda.get_device_capability(device) != (9, 0):
        return None
    from pcmcnet.layers.pairwise import hopper

    return hopper
