"""Tiles of matrices, and which layers are made of whole ones."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS = gl.constexpr(64)  # pairs of a tile
UNITS = gl.constexpr(128)  # of a tile
CHUNK = gl.constexpr(64)  # what is multiplied at a time
WIDEST = 512  # inputs of a layer: shared memory holds their weights for the units of a tile
LAUNCH = {"num_warps": 4, "maxnreg": 168}  # the two groups get most of the registers, the warp that copies next to none
SLOPES = {"relu": 0.0, "leaky_relu": 0.01}  # below 0


def takes(weight: Tensor, activation: str) -> bool:
    """Tell whether a layer is of a kind and size for these kernels."""
    whole = all(width % UNITS.value == 0 for width in weight.shape)
    return activation in SLOPES and weight.dtype == torch.bfloat16 and whole and max(weight.shape) <= WIDEST


def tiles(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Describe a matrix to the unit that copies tiles of it."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns], _layout(rows, columns))


@cache
def _layout(rows: int, columns: int) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)
