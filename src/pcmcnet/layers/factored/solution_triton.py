"""The solution of factored chains on a CUDA device: one program per set, and one kernel for each pass.

The steps are those of :mod:`pcmcnet.layers.factored.solution`, which needs about a hundred kernels for them. A program
reads the alternatives of its set in chunks, several times, and computes in float64. The chain of the factors stays in
its registers. It supports sets and ranks up to the limits in :mod:`pcmcnet.layers.settings`. Shapes: log_u, log_v
(B, J, r), mask (B, J) -> log p (B, J). R is r rounded up to a power of two; the factors of the elimination fill the
first B R R numbers of their tensor, whose size does not depend on J, and the rest is 0.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.factored.solution import Results, kernel_width
from pcmcnet.layers.kernel_launch import launch, wait_for_earlier
from pcmcnet.layers.stationary.elimination import result_type
from pcmcnet.layers.stationary.elimination_triton import _column, _eliminate, _grow
from pcmcnet.layers.stationary.gradient import factor_width

LOW = tl.constexpr(torch.finfo(torch.float64).min / 8)  # stands for log 0, and has finite differences
SMALLEST = tl.constexpr(torch.finfo(torch.float64).tiny / torch.finfo(torch.float64).eps)


def solve(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Results:
    """Return the results of ``pcmcnet::factored``."""
    (B, J, r), R = log_u.shape, kernel_width(log_u)
    assert R is not None
    log_u, log_v, mask = _rows(log_u), _rows(log_v), mask.contiguous()
    log_p = log_u.new_empty(B, J, dtype=result_type(log_u.dtype))
    shapes = ((B, 1, r), (B, J), (B, r), (B * r,), (B * r,), (B,))
    log_total, p, b, exits, working_b, scale = (log_u.new_empty(shape, dtype=torch.float64) for shape in shapes)
    factors = log_u.new_zeros(B * factor_width(b) ** 2, dtype=torch.float64)  # at least B R R
    saved = (log_total, p, b, factors, exits, working_b, scale)
    room, strides = log_u.new_empty(2, B, J, dtype=torch.float64), (log_u.stride(1), log_v.stride(1))
    launch(_forward, (B,), log_u, log_v, mask, log_p, *saved, *room, J, r, *strides, **_constants(R))
    return (log_p, *saved)


def pull_back(
    grad: Tensor,
    log_u: Tensor,
    log_v: Tensor,
    mask: Tensor,
    log_total: Tensor,
    p: Tensor,
    b: Tensor,
    factors: Tensor,
    exits: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients w.r.t. log u and log v (B, J, r), in the dtype of ``grad``."""
    (B, J, r), R = log_u.shape, kernel_width(log_u)
    assert R is not None
    log_u, log_v, mask, grad = _rows(log_u), _rows(log_v), mask.contiguous(), grad.contiguous()
    by_u, by_v = grad.new_empty(B, J, r), grad.new_empty(B, J, r)
    arguments = (grad, log_u, log_v, mask, log_total, p, b, factors, exits, exits.new_empty(B * R), by_u, by_v, J, r)
    launch(_backward, (B,), *arguments, log_u.stride(1), log_v.stride(1), **_constants(R))
    return by_u, by_v


def _rows(x: Tensor) -> Tensor:
    """Return a tensor (B, J, r) with a constant stride between rows, such as one half of a wider tensor."""
    even = x.stride(2) == 1 and (x.shape[0] == 1 or x.stride(0) == x.shape[1] * x.stride(1))
    return x if even else x.contiguous()


def _constants(R: int) -> dict[str, Any]:
    """Return the width of the chain, the alternatives of a chunk, without and with products, and the warps."""
    return {"R": R, "C": max(1024 // R, 1), "D": max(4096 // R**2, 1), "num_warps": settings.FACTORED_KERNEL_WARPS}


@triton.jit
def _load(x, mask, b, j, J, r, stride, R: tl.constexpr, other):
    """Load a chunk (C, R) as float64, with ``other`` at padding and beyond the factors."""
    k = tl.arange(0, R)
    real = (j < J) & (tl.load(mask + b * J + j, mask=j < J, other=0) != 0)
    here = (j < J)[:, None] & (k < r)[None, :]
    values = tl.load(x + (b * J + j)[:, None] * stride + k[None, :], mask=here, other=0.0).to(tl.float64)
    return tl.where(real[:, None] & here, values, other), real


@triton.jit
def _log_sum(x):
    """Return the logarithm of the sum of exponentials along each row: (C, R) -> (C,)."""
    top = tl.max(x, 1)
    return top + tl.log(tl.sum(tl.exp(x - top[:, None]), 1))


@triton.jit
def _leave(u, log_total, r, R: tl.constexpr):
    """Return w (C, R) and log d (C,) of a chunk."""
    exits = tl.where((tl.arange(0, R) < r)[None, :], u + log_total[None, :], LOW)
    log_d = _log_sum(exits)
    return tl.exp(exits - log_d[:, None]), log_d


@triton.jit
def _enter(v, log_total, j, J, r, R: tl.constexpr):
    """Return a (C, R) of a chunk, with zeros beyond the alternatives and the factors."""
    here = (j < J)[:, None] & (tl.arange(0, R) < r)[None, :]
    return tl.where(here, tl.exp(v - log_total[None, :]), 0.0)


@triton.jit(do_not_specialize=["J"])
def _forward(
    log_u,
    log_v,
    mask,
    log_p,
    totals,
    p,
    law,
    factors,
    exits,
    copy,
    scale,
    stays,
    logs,
    J,
    r,
    stride_u,
    stride_v,
    R: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    wait_for_earlier()
    b, k = tl.program_id(0).to(tl.int64), tl.arange(0, R)
    factors += b * R * R
    exits += b * r
    # 1. V_k, the sum over the alternatives.
    top, total = tl.full((R,), LOW, tl.float64), tl.zeros((R,), tl.float64)
    for begin in range(0, J, C):
        j = begin + tl.arange(0, C)
        v, _ = _load(log_v, mask, b, j, J, r, stride_v, R, LOW)
        higher = tl.maximum(top, tl.max(v, 0))
        terms = tl.where((j < J)[:, None], tl.exp(v - higher[None, :]), 0.0)
        total = total * tl.exp(top - higher) + tl.sum(terms, 0)
        top = higher
    log_total = top + tl.log(total)
    tl.store(totals + b * r + k, log_total, mask=k < r)
    # 2. The chain of the factors.
    chain = tl.zeros((R, R), tl.float64)
    for begin in range(0, J, D):
        j = begin + tl.arange(0, D)
        v, _ = _load(log_v, mask, b, j, J, r, stride_v, R, LOW)
        u, _ = _load(log_u, mask, b, j, J, r, stride_u, R, 0.0)
        a = _enter(v, log_total, j, J, r, R)
        w, log_d = _leave(u, log_total, r, R)
        chain += tl.sum(a[:, :, None] * w[:, None, :], 0)
        tl.store(stays + b * J + j, -log_d, mask=j < J)
    chain = tl.where((k < r)[:, None] & (k < r)[None, :], chain + SMALLEST, 0.0)
    # 3. Its stationary distribution, by elimination. The first state is never removed.
    tl.store(exits, 1.0)
    _eliminate(chain, factors, exits, r, 1, R, R)
    share = tl.where(k == 0, 1.0, 0.0).to(tl.float64)
    column, leaving = _column(factors, exits, R, 1, r > 1, R)
    for i in range(1, r):
        following = _column(factors, exits, R, i + 1, i + 1 < r, R)  # loaded while this column is used
        odds = tl.sum(share * column, 0) / leaving
        share = tl.where(k == i, odds, share) / (1.0 + odds)
        column, leaving = following
    tl.store(law + b * r + k, share, mask=k < r)
    tl.store(copy + b * r + k, share, mask=k < r)
    tl.store(scale + b, 1.0)
    # 4. Entries times stays, and the logarithm of their sum.
    log_b = tl.where(k < r, tl.log(tl.maximum(share, SMALLEST)), LOW)
    largest, whole = tl.full((C,), LOW, tl.float64), tl.zeros((C,), tl.float64)
    for begin in range(0, J, C):
        j = begin + tl.arange(0, C)
        v, real = _load(log_v, mask, b, j, J, r, stride_v, R, LOW)
        log_e = _log_sum(tl.where((k < r)[None, :], v - log_total[None, :], LOW) + log_b[None, :])
        x = tl.where(real, log_e + tl.load(stays + b * J + j, mask=j < J, other=0.0), LOW)
        higher = tl.maximum(largest, x)
        whole = whole * tl.exp(largest - higher) + tl.where(j < J, tl.exp(x - higher), 0.0)
        largest = higher
        tl.store(logs + b * J + j, x, mask=j < J)
    top_of_set = tl.max(largest, 0)
    log_whole = top_of_set + tl.log(tl.sum(whole * tl.exp(largest - top_of_set), 0))
    # 5. Log-probabilities.
    tl.debug_barrier()  # other threads read the logarithms
    for begin in range(0, J, C):
        j = begin + tl.arange(0, C)
        real = (j < J) & (tl.load(mask + b * J + j, mask=j < J, other=0) != 0)
        x = tl.load(logs + b * J + j, mask=j < J, other=0.0) - log_whole
        tl.store(log_p + b * J + j, tl.where(real, x, float("-inf")).to(log_p.dtype.element_ty), mask=j < J)
        tl.store(p + b * J + j, tl.where(real, tl.exp(x), 0.0), mask=j < J)


@triton.jit
def _derivative(grad, p, mask, b, j, J, whole):
    """Load h (C,) of a chunk."""
    real = (j < J) & (tl.load(mask + b * J + j, mask=j < J, other=0) != 0)
    g = tl.where(real, tl.load(grad + b * J + j, mask=j < J, other=0.0).to(tl.float64), 0.0)
    return g - tl.load(p + b * J + j, mask=j < J, other=0.0) * whole


@triton.jit
def _entry_shares(v, log_total, log_b, r, R: tl.constexpr):
    """Return rho (C, R) of a chunk."""
    x = tl.where((tl.arange(0, R) < r)[None, :], v - log_total[None, :], LOW) + log_b[None, :]
    return tl.exp(x - _log_sum(x)[:, None])


@triton.jit(do_not_specialize=["J"])
def _backward(
    grad,
    log_u,
    log_v,
    mask,
    totals,
    p,
    law,
    factors,
    exits,
    room,
    by_u,
    by_v,
    J,
    r,
    stride_u,
    stride_v,
    R: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    wait_for_earlier()
    b, k = tl.program_id(0).to(tl.int64), tl.arange(0, R)
    factors += b * R * R
    exits += b * r
    room += b * R
    law += b * r
    log_total = tl.load(totals + b * r + k, mask=k < r, other=0.0)
    share = tl.load(law + k, mask=k < r, other=0.0)
    log_b = tl.where(k < r, tl.log(tl.maximum(share, SMALLEST)), LOW)
    # 1. The derivative by log(e / d), and by log b through the shares rho of the factors in e.
    sums = tl.zeros((C,), tl.float64)
    for begin in range(0, J, C):
        sums += _derivative(grad, p, mask, b, begin + tl.arange(0, C), J, 0.0)
    whole = tl.sum(sums, 0)
    g = tl.zeros((R,), tl.float64)
    for begin in range(0, J, C):
        j = begin + tl.arange(0, C)
        v, _ = _load(log_v, mask, b, j, J, r, stride_v, R, LOW)
        h = _derivative(grad, p, mask, b, j, J, whole)
        g += tl.sum(_entry_shares(v, log_total, log_b, r, R) * h[:, None], 0)
    # 2. The derivative by the chain of the factors, from the factors of its elimination.
    g = tl.where(k < r, g / tl.maximum(share, SMALLEST), 0.0)
    g = tl.where(k < r, g - tl.sum(g * share, 0), 0.0)
    column, leaving = _column(factors, exits, R, r - 1, r > 1, R)
    for step in range(1, r):
        i = r - step
        following = _column(factors, exits, R, i - 1, i > 1, R)
        here = tl.sum(tl.where(k == i, g, 0.0), 0) / leaving
        g = tl.where(k == i, here, g) + column * here
        column, leaving = following
    tl.store(room + k, g)
    tl.debug_barrier()
    by_chain = _grow(tl.zeros((R, R), dtype=tl.float64), factors, exits, law, room, 1, r, R, R)
    # 3. Back through both steps of a transition. The gradient by log a is stored as that by log v.
    by_total = tl.zeros((R,), tl.float64)
    for begin in range(0, J, D):
        j = begin + tl.arange(0, D)
        v, _ = _load(log_v, mask, b, j, J, r, stride_v, R, LOW)
        u, _ = _load(log_u, mask, b, j, J, r, stride_u, R, 0.0)
        h = _derivative(grad, p, mask, b, j, J, whole)
        a = _enter(v, log_total, j, J, r, R)
        w, _ = _leave(u, log_total, r, R)
        by_a = a * tl.sum(w[:, None, :] * by_chain[None, :, :], 2)
        by_a += _entry_shares(v, log_total, log_b, r, R) * h[:, None]
        by_w = w * tl.sum(a[:, :, None] * by_chain[None, :, :], 1)
        by_exit = by_w - w * (h + tl.sum(by_w, 1))[:, None]
        inside = (j < J)[:, None] & (k < r)[None, :]
        by_total += tl.sum(tl.where(inside, by_exit - by_a, 0.0), 0)
        at = (b * J + j)[:, None] * r + k[None, :]
        tl.store(by_u + at, by_exit.to(by_u.dtype.element_ty), mask=inside)
        tl.store(by_v + at, by_a.to(by_v.dtype.element_ty), mask=inside)
    tl.debug_barrier()  # other threads read these gradients
    # 4. Back through the total V, of which each v is a part.
    for begin in range(0, J, C):
        j = begin + tl.arange(0, C)
        v, _ = _load(log_v, mask, b, j, J, r, stride_v, R, LOW)
        inside = (j < J)[:, None] & (k < r)[None, :]
        at = (b * J + j)[:, None] * r + k[None, :]
        added = _enter(v, log_total, j, J, r, R) * by_total[None, :]
        by_a = tl.load(by_v + at, mask=inside, other=0.0).to(tl.float64)
        tl.store(by_v + at, (by_a + added).to(by_v.dtype.element_ty), mask=inside)
