"""Tiles of matrices, and which layers are made of whole ones."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS = gl.constexpr(64)  # of half a tile
CHUNK = gl.constexpr(64)  # what is multiplied at a time
LAUNCH = {"num_warps": 4, "maxnreg": 168}  # the two groups get most of the registers, the warp that copies next to none
SLOPES = {"relu": 0.0, "leaky_relu": 0.01}  # below 0


def takes(weight: Tensor, activation: str) -> bool:
    """Tell whether a layer is of a kind and size for these kernels."""
    return activation in SLOPES and weight.dtype == torch.bfloat16 and all(width % 128 == 0 for width in weight.shape)


def columns(units: int) -> int:
    """Return the columns of a tile."""
    return 256 if units % 256 == 0 else 128


def tiles(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Describe a matrix to the unit that copies tiles of it."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns], _layout(rows, columns))


@cache
def _layout(rows: int, columns: int) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)
