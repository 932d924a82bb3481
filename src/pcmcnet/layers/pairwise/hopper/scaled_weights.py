"""The weights of the last hidden layer as its kernels take them, in one pass over them.

    weight (H, D) -> c weight,    w (H,) -> c w,    and for the way back the transpose of c w (c weight)

with c = 1 / (1 - dropout), by which what is not dropped is scaled. Matrices are in bfloat16.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.overlap import wait_for_earlier

BLOCK = 64  # units of a program, and inputs. Widths are multiples of it


def scaled_weights(weight: Tensor, w: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return weight, output weight, and what takes gradients back."""
    units, width = weight.shape
    forth = torch.empty_like(weight, dtype=torch.bfloat16, memory_format=torch.contiguous_format)
    back, out = forth.new_empty(width, units), torch.empty_like(w)
    grid = (units // BLOCK, width // BLOCK)
    launch(_scale, grid, weight.contiguous(), w, forth, out, back, scale, units, width, C=BLOCK, num_warps=4)
    return forth, out, back


@triton.jit(do_not_specialize=["scale"])
def _scale(weight, w, forth, out, back, scale, H, D, C: tl.constexpr):
    wait_for_earlier()
    u, d = tl.program_id(0) * C + tl.arange(0, C), tl.program_id(1) * C + tl.arange(0, C)
    v = tl.load(w + u) * scale
    x = (tl.load(weight + u[:, None] * D + d[None, :]) * scale).to(tl.bfloat16)
    tl.store(forth + u[:, None] * D + d[None, :], x)
    y = (x.to(tl.float32) * v[:, None]).to(tl.bfloat16)
    tl.store(back + d[:, None] * H + u[None, :], tl.trans(y))
    if tl.program_id(1) == 0:
        tl.store(out + u, v)
