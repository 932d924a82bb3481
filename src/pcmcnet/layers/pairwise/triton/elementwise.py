"""Elementwise kernels of the pair network: activation, dropout, and the conversion of scores to rates."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.kernel_launch import launch, wait_for_earlier
from pcmcnet.layers.pairwise.rate_forms import plain_rates
from pcmcnet.layers.settings import ELEMENTWISE_BLOCK as BLOCK
from pcmcnet.layers.tensor_ops import pull_back

# -- activation of a hidden unit of a pair, its derivative, dropout ----------------------------------------------------
# A unit u of a pair is dropped if a + b c_u, in 32 bits, is below a limit. a and b are hashes of seed and pair, c_u is
# a hash of u. This takes one multiplication, so masks are not stored but computed again wherever they are needed.

UNIT = tl.constexpr(0x85EBCA6B)


@triton.jit
def scramble(x):
    """Return a 32-bit hash of x."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    x ^= x >> 16
    return x


@triton.jit
def unit_number(unit):
    """Return c_u, the hash of a unit."""
    return scramble(unit.to(tl.uint32) + UNIT)


@triton.jit
def drop(h, seed, pair, unit, limit):
    """Zero the dropped entries of h (R, C), chosen by a hash of seed, pair (R,) and unit (C,), without rescaling."""
    a, b = pair_numbers(pair, seed)
    return drop_units(h, a, b, unit_number(unit), limit)


@triton.jit
def pair_numbers(pair, seed):
    """Return a and b, the hashes of a pair."""
    a = scramble(pair.to(tl.uint32) ^ seed.to(tl.uint32))
    return a, scramble(a + 0x9E3779B9) | 1


@triton.jit
def drop_units(h, a, b, c, limit):
    """Zero the same entries of h (R, C) as ``drop`` does, in float32, given the hashes a, b (R,) and c (C,).

    The comparison and the selection are one block of assembly, because compilers would defer the selections, and pack
    and unpack the results of the comparisons in between.
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
    """Apply the activation, in the dtype of z if its precision suffices, otherwise in float32."""
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
    """Multiply ``by`` by the derivative of the activation at z, in float32."""
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
    """Return the hashes c_u of all units, for kernels that would otherwise compute the hashes for every tile."""
    numbers = scramble.fn(np.arange(width, dtype=np.uint32) + np.uint32(UNIT.value))
    return torch.from_numpy(numbers.view(np.int32)).to(device)


# -- scores -> rates, in one kernel for each pass; torch needs about ten -----------------------------------------------
# The formulas are those of `pcmcnet.layers.pairwise.rate_forms`, for the forms exp and relu. Shapes: scores (B, n, n),
# mask (B, n) -> rates (B, n, n), divided by the largest of the set.


def rates(scores: Tensor, mask: Tensor, *, rate: str, epsilon: float, floor: float) -> Tensor:
    """Return the rates for given scores: (B, n, n), mask (B, n) -> (B, n, n)."""
    result: Tensor = _Rates.apply(scores, mask, rate, epsilon, floor)
    return result


class _Rates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, rate: str, epsilon: float, floor: float) -> Tensor:
        sets, n, _ = scores.shape
        values, out, top = scores.detach().contiguous(), scores.new_empty(scores.shape), scores.new_empty(sets)
        options = (n, epsilon, math.log(epsilon) if epsilon else -math.inf, floor)
        launch(_rates_forward, (sets,), values, mask.contiguous(), out, top, *options, RATE=rate, C=BLOCK)
        ctx.save_for_backward(scores, mask, top)
        ctx.rate, ctx.epsilon = rate, epsilon
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, mask, top = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            plain = partial(plain_rates, mask=mask, rate=ctx.rate, epsilon=ctx.epsilon)
            return *pull_back(plain, [scores], gradient), None, None, None, None
        scores = scores.contiguous()
        sets, n, _ = scores.shape
        out = torch.empty_like(scores)
        grid = (sets, triton.cdiv(n * n, BLOCK))
        launch(_rates_backward, grid, scores, top, gradient.contiguous(), out, n, RATE=ctx.rate, C=BLOCK)
        return out, None, None, None, None


@triton.jit(do_not_specialize=["n", "epsilon", "log_epsilon", "floor"])
def _rates_forward(scores, mask, out, top, n, epsilon, log_epsilon, floor, RATE: tl.constexpr, C: tl.constexpr):
    """Compute the rates of a set in two passes: find the largest entry of its matrix, then divide by this entry."""
    wait_for_earlier()
    b, c = tl.program_id(0).to(tl.int64), tl.arange(0, C)
    scores += b * n * n
    out += b * n * n
    mask += b * n
    largest = tl.full((C,), float("-inf"), tl.float32)
    for begin in range(0, n * n, C):
        at = begin + c
        i, j = at // n, at % n
        here = at < n * n
        s = tl.load(scores + at, mask=here, other=0.0)
        pairs = here & (i != j) & (tl.load(mask + i, mask=here, other=0) != 0)
        pairs &= tl.load(mask + j, mask=here, other=0) != 0
        largest = tl.maximum(largest, tl.where(pairs & (s == s), s, float("-inf")))  # NaN stays NaN
    s_top = tl.max(largest, 0)
    none = s_top == float("-inf")
    s_top = tl.minimum(s_top, 3.4028234663852886e38)  # the largest finite number
    if RATE == "relu":
        q_top = tl.where(none, 1.0, tl.maximum(tl.maximum(s_top, 0.0) + epsilon, 1.1754943508222875e-38))
    else:
        q_top = tl.maximum(tl.where(none, 1.0, s_top), log_epsilon)
    tl.store(top + b, q_top)
    for begin in range(0, n * n, C):
        at = begin + c
        s = tl.load(scores + at, mask=at < n * n, other=0.0)
        if RATE == "relu":
            q = (tl.maximum(s, 0.0, propagate_nan=tl.PropagateNan.ALL) + epsilon) / q_top
        else:
            q = tl.exp(tl.minimum(s - q_top, 0.0, propagate_nan=tl.PropagateNan.ALL))
            q += tl.where(epsilon > 0, epsilon * tl.exp(-q_top), 0.0)
        tl.store(out + at, q + floor, mask=at < n * n)


@triton.jit(do_not_specialize=["n"])
def _rates_backward(scores, top, gradient, out, n, RATE: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    b, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    here, at = at < n * n, b * n * n + at
    s, largest = tl.load(scores + at, mask=here, other=0.0), tl.load(top + b)
    slope = tl.where(s > 0, 1 / largest, 0.0) if RATE == "relu" else tl.where(s <= largest, tl.exp(s - largest), 0.0)
    tl.store(out + at, slope * tl.load(gradient + at, mask=here, other=0.0), mask=here)
