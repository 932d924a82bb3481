"""Tiles of matrices, and which layers are made of whole ones."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from pcmcnet.layers import settings

ROWS = gl.constexpr(settings.HOPPER_TILE_PAIRS)  # pairs of a tile
UNITS = gl.constexpr(settings.HOPPER_TILE_UNITS)  # of a tile
CHUNK = gl.constexpr(settings.HOPPER_CHUNK)  # what is multiplied at a time
LAUNCH = {"num_warps": 4, "maxnreg": 168}  # the two groups get most of the registers, the warp that copies next to none
SLOPES = {"relu": 0.0, "leaky_relu": 0.01}  # below 0


def fits(weight: Tensor, dtype: torch.dtype, activation: str) -> bool:
    """Tell whether a layer, and the type of its product, are of a kind and size for these kernels."""
    whole = all(width % UNITS.value == 0 and width <= settings.HOPPER_WIDEST_LAYER for width in weight.shape)
    return activation in SLOPES and dtype == torch.bfloat16 and whole


def tiles(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Describe a matrix to the unit that copies tiles of it."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns], _layout(rows, columns))


@cache
def _layout(rows: int, columns: int) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)
