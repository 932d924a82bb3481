"""What happens to a hidden unit of a pair: activation, its derivative, dropout.

A unit u of a pair is dropped where a + b c_u, in 32 bits, is below a limit. a and b are scrambled from seed and pair,
c_u from u. That takes one multiplication, so masks are not stored but found again wherever they are needed.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

UNIT = tl.constexpr(0x85EBCA6B)


@triton.jit
def scramble(x):
    """Make 32 bits that look random of 32 that need not."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    x ^= x >> 16
    return x


@triton.jit
def unit_number(unit):
    """Return c_u."""
    return scramble(unit.to(tl.uint32) + UNIT)


@triton.jit
def drop(h, seed, pair, unit, limit):
    """Set entries of (R, C) to 0, at random by seed, pair (R,) and unit (C,); weights have the scale of the others."""
    a, b = pair_numbers(pair, seed)
    return drop_units(h, a, b, unit_number(unit), limit)


@triton.jit
def pair_numbers(pair, seed):
    """Return a and b."""
    a = scramble(pair.to(tl.uint32) ^ seed.to(tl.uint32))
    return a, scramble(a + 0x9E3779B9) | 1


@triton.jit
def drop_units(h, a, b, c, limit):
    """Set entries of (R, C) to 0 as ``drop`` does, in float32, with the numbers a, b (R,) and c (C,) at hand.

    Comparison and choice are one piece of code: compilers put off the choices, and pack and unpack what was found.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .pred kept;
        setp.hs.u32 kept, $2, $3;
        selp.f32 $0, $1, 0f00000000, kept;
        }""",
        "=f,f,r,r",
        [h, a[:, None] + b[:, None] * c[None, :], limit.to(tl.uint32)],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def activate(z, ACT: tl.constexpr):
    """Activate, in the type of z where that is exact enough."""
    if ACT == "relu":
        h = tl.maximum(z, 0.0)
    elif ACT == "leaky_relu":
        h = tl.maximum(z, 0.01 * z)
    elif ACT == "sigmoid":
        h = tl.sigmoid(z.to(tl.float32))
    elif ACT == "tanh":
        h = 2.0 * tl.sigmoid(2.0 * z.to(tl.float32)) - 1.0
    elif ACT == "silu":
        h = z * tl.sigmoid(z.to(tl.float32))
    else:
        h = 0.5 * z * (1.0 + tl.erf(z.to(tl.float32) * 0.7071067811865476))
    return h


@triton.jit
def activation_backward(z, by, ACT: tl.constexpr):
    """Multiply by the derivative of the activation at z, in float32."""
    if ACT == "relu":
        d = tl.where(z > 0, by, 0.0)
    elif ACT == "leaky_relu":
        d = tl.where(z > 0, by, 0.01 * by)
    elif ACT == "sigmoid":
        s = tl.sigmoid(z)
        d = by * (s * (1.0 - s))
    elif ACT == "tanh":
        t = 2.0 * tl.sigmoid(2.0 * z) - 1.0
        d = by * (1.0 - t * t)
    elif ACT == "silu":
        s = tl.sigmoid(z)
        d = by * (s * (1.0 + z * (1.0 - s)))
    else:
        d = by * (0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * 0.3989422804014327 * tl.exp(-0.5 * z * z))
    return d


@cache
def numbers_of_units(width: int, device: torch.device) -> Tensor:
    """Return c_u of all units, for kernels that would find them again for every tile."""
    numbers = scramble.fn(np.arange(width, dtype=np.uint32) + np.uint32(UNIT.value))
    return torch.from_numpy(numbers.view(np.int32)).to(device)
