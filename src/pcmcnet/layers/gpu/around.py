"""What comes before and after the elimination on a CUDA device, one kernel each where torch takes ten.

    rates                scores (B, n, n) -> rates, divided by the largest of the set; a program has a set
    log_probabilities    p (B, n) -> log p

Formulas are those of ``layers.rates`` and ``layers.likelihood``.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pcmcnet.layers.gpu.launch import launch

FORMS = ("exp", "relu")
WIDTHS = (8, 32, 64, 128)  # of the matrix of a set; few, as the kernels are compiled for each
BLOCK = 1024


def has_form(scores: Tensor, rate: str) -> bool:
    """Tell whether there is a kernel for rates of a form."""
    return scores.dtype == torch.float32 and rate in FORMS and 0 < scores.shape[-1] <= WIDTHS[-1]


def rates(scores: Tensor, mask: Tensor, *, rate: str, epsilon: float, floor: float) -> Tensor:
    """Turn scores into rates: (B, n, n), (B, n) -> (B, n, n)."""
    found: Tensor = _Rates.apply(scores, mask, rate, epsilon, floor)
    return found


def log_probabilities(p: Tensor, mask: Tensor) -> Tensor:
    """Take logs; padding and probabilities of 0 get -inf and no gradient."""
    found: Tensor = _LogProbabilities.apply(p, mask)
    return found


class _Rates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, rate: str, epsilon: float, floor: float) -> Tensor:
        scores = scores.detach().contiguous()
        sets, n, _ = scores.shape
        out, top = torch.empty_like(scores), scores.new_empty(sets)
        given = (scores, mask.contiguous(), out, top, n, epsilon, math.log(epsilon) if epsilon else -math.inf, floor)
        launch(_fill_rates, (sets,), *given, RATE=rate, **_shape(n))
        ctx.save_for_backward(scores, top)
        ctx.rate = rate
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, top = ctx.saved_tensors
        sets, n, _ = scores.shape
        out = torch.empty_like(scores)
        launch(_unfill_rates, (sets,), scores, top, gradient.contiguous(), out, n, RATE=ctx.rate, **_shape(n))
        return out, None, None, None, None


class _LogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, mask: Tensor) -> Tensor:
        p, mask = p.detach().contiguous(), mask.contiguous()
        out = torch.empty_like(p)
        launch(_take_logs, (triton.cdiv(p.numel(), BLOCK),), p, mask, out, p.numel(), C=BLOCK)
        ctx.save_for_backward(p, mask)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        p, mask = ctx.saved_tensors
        out = torch.empty_like(p)
        launch(_untake_logs, (triton.cdiv(p.numel(), BLOCK),), p, mask, gradient.contiguous(), out, p.numel(), C=BLOCK)
        return out, None


def _shape(n: int) -> dict[str, int]:
    width = next(width for width in WIDTHS if n <= width)
    return {"N": width, "num_warps": max(min(width * width // 1024, 8), 1)}


@triton.jit(do_not_specialize=["n", "epsilon", "log_epsilon", "floor"])
def _fill_rates(scores, mask, out, top, n, epsilon, log_epsilon, floor, RATE: tl.constexpr, N: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    here, at = (i < n) & (j < n), b * n * n + i * n + j
    s = tl.load(scores + at, mask=here, other=0.0)
    left = tl.load(mask + b * n + i, mask=i < n, other=0)
    entered = tl.load(mask + b * n + j, mask=j < n, other=0)
    pairs = (left != 0) & (entered != 0) & (i != j)
    if RATE == "relu":
        q = tl.maximum(s, 0.0, propagate_nan=tl.PropagateNan.ALL) + epsilon
        largest = _largest(q, pairs)
        largest = tl.maximum(largest, 1.1754943508222875e-38)  # the smallest normal number
        q = q / largest
    else:
        largest = tl.maximum(_largest(s, pairs), log_epsilon)
        q = tl.exp(tl.minimum(s - largest, 0.0, propagate_nan=tl.PropagateNan.ALL))
        q += tl.where(epsilon > 0, epsilon * tl.exp(-largest), 0.0)
    tl.store(top + b, largest)
    tl.store(out + at, q + floor, mask=here)


@triton.jit
def _largest(values, pairs):
    """Return the largest finite value over pairs; 1 without a pair. A NaN is not it, and stays where it is."""
    known = pairs & (values == values)
    top = tl.max(tl.max(tl.where(known, values, float("-inf")), 1), 0)
    return tl.where(top == float("-inf"), 1.0, tl.minimum(top, 3.4028234663852886e38))


@triton.jit(do_not_specialize=["n"])
def _unfill_rates(scores, top, gradient, out, n, RATE: tl.constexpr, N: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    here, at = (i < n) & (j < n), b * n * n + i * n + j
    s, largest = tl.load(scores + at, mask=here, other=0.0), tl.load(top + b)
    slope = tl.where(s > 0, 1 / largest, 0.0) if RATE == "relu" else tl.where(s <= largest, tl.exp(s - largest), 0.0)
    tl.store(out + at, slope * tl.load(gradient + at, mask=here, other=0.0), mask=here)


@triton.jit(do_not_specialize=["count"])
def _take_logs(p, mask, out, count, C: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C)
    x = tl.load(p + at, mask=at < count, other=0.0)
    possible = (tl.load(mask + at, mask=at < count, other=0) != 0) & (x != 0)
    tl.store(out + at, tl.where(possible, tl.log(tl.where(possible, x, 1.0)), float("-inf")), mask=at < count)


@triton.jit(do_not_specialize=["count"])
def _untake_logs(p, mask, gradient, out, count, C: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C)
    x, g = tl.load(p + at, mask=at < count, other=0.0), tl.load(gradient + at, mask=at < count, other=0.0)
    possible = (tl.load(mask + at, mask=at < count, other=0) != 0) & (x != 0)
    tl.store(out + at, tl.where(possible, g / tl.where(possible, x, 1.0), 0.0), mask=at < count)
