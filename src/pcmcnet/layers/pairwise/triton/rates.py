"""Scores -> rates on a CUDA device, in one kernel each way where torch takes ten.

The formulas are those of :mod:`pcmcnet.layers.pairwise.rate_forms`, for the forms exp and relu.
Shapes: scores (B, n, n), mask (B, n) -> rates (B, n, n), divided by the largest of the set.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.overlap import wait_for_earlier
from pcmcnet.layers.pairwise.rate_forms import plain_rates
from pcmcnet.layers.settings import ELEMENTWISE_BLOCK as BLOCK
from pcmcnet.layers.transforms import pull_back


def rates(scores: Tensor, mask: Tensor, *, rate: str, epsilon: float, floor: float) -> Tensor:
    """Turn scores into rates: (B, n, n), (B, n) -> (B, n, n)."""
    found: Tensor = _Rates.apply(scores, mask, rate, epsilon, floor)
    return found


class _Rates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, rate: str, epsilon: float, floor: float) -> Tensor:
        sets, n, _ = scores.shape
        given, out, top = scores.detach().contiguous(), scores.new_empty(scores.shape), scores.new_empty(sets)
        options = (n, epsilon, math.log(epsilon) if epsilon else -math.inf, floor)
        launch(_rates_forward, (sets,), given, mask.contiguous(), out, top, *options, RATE=rate, C=BLOCK)
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
    """Go twice through the matrix of a set: for its largest entry, and to divide by it."""
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
        largest = tl.maximum(largest, tl.where(pairs & (s == s), s, float("-inf")))  # a NaN stays where it is
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
