"""The elimination on a CUDA device: one program per set, its matrix in registers.

The steps are those of :mod:`elimination`, in the type of the rates: the forward pass never subtracts, so float32 keeps
about six digits of every component. A step reads one row and one column out of the matrix, which registers are not made
for: it is a sum over all of it. So once half of the states are out, the rest goes on in a matrix of half the size.
Shapes: rates (B, n, n), mask (B, n) -> law (B, n); factors (B, n, n) as ``eliminate`` leaves them, exits (B, n).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.stationary.scale import copied, result_type


def forward(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the law (B, n) and what ``backward`` needs: factors, exits, the law, scale; all flat."""
    q = rates.to(result_type(rates.dtype)).contiguous()
    sets, n, _ = q.shape
    factors, exits, law, scale = (q.new_empty(size) for size in (q.numel(), sets * n, sets * n, sets))
    launch(_solve, (sets,), q, mask.contiguous(), factors, exits, law, scale, n, **_shape(q, n))
    return copied(law.view(sets, n), rates.dtype), factors, exits, law, scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, law: Tensor, scale: Tensor) -> Tensor:
    """Turn dL/dp (B, n) into the gradient in the rates (B, n, n)."""
    sets, n = mask.shape
    flow = factors.new_empty(sets, n, n)
    grad = grad.contiguous()
    launch(_pull_back, (sets,), grad, mask.contiguous(), factors, exits, law, scale, flow, n, **_shape(flow, n))
    return flow.to(grad.dtype)


def _shape(q: Tensor, n: int) -> dict[str, int]:
    """Size the matrix, and give a thread 128 of its numbers, or fewer where there are few sets."""
    width = next(width for width in settings.ELIMINATION_TRITON_WIDTHS if n <= width)
    share = 128 * 4 // q.element_size() if len(q) > settings.ELIMINATION_TRITON_FEW_SETS else 16
    return {"N": width, "num_warps": min(max(width * width // (32 * share), 1), 16)}


@triton.jit
def _eliminate(q, factors, exits, n, top, bottom, N: tl.constexpr):
    """Take states out, from ``top`` - 1 down to ``bottom``."""
    i, r, c = tl.arange(0, N), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    for step in range(1, top - bottom + 1):
        k = top - step
        row = tl.sum(tl.where((r == k) & (c < k), q, 0.0), 0)
        column = tl.sum(tl.where((c == k) & (r < k), q, 0.0), 1)
        leaving = tl.sum(row, 0)
        row = row / leaving
        q += column[:, None] * row[None, :]
        tl.store(exits + k, leaving)
        tl.store(factors + k * n + i, row, mask=i < k)
        tl.store(factors + i * n + k, column, mask=i < k)
    return q


@triton.jit(do_not_specialize=["n"])
def _solve(rates, real, factors, exits, law, scale, n, N: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    i, r, c = tl.arange(0, N), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    size = tl.sum(tl.load(real + b * n + i, mask=i < n, other=0).to(tl.int32), 0)
    rates += b * n * n
    factors += b * n * n
    exits += b * n
    q = tl.load(rates + r * n + c, mask=(r < size) & (c < size) & (r != c), other=0.0)
    largest = tl.max(tl.max(q, 1), 0)
    largest = tl.where(largest > 0, largest, 1.0)
    tl.store(scale + b, largest)
    q = q / largest
    if N > 32:
        q = _eliminate(q, factors, exits, n, size, tl.minimum(size, N // 2), N)
        tl.store(factors + r * n + c, q, mask=(r < N // 2) & (c < N // 2) & (r < size) & (c < size))
        tl.debug_barrier()
        r2, c2 = tl.arange(0, N // 2)[:, None], tl.arange(0, N // 2)[None, :]
        rest = tl.load(factors + r2 * n + c2, mask=(r2 < size) & (c2 < size), other=0.0)
        tl.debug_barrier()
        _eliminate(rest, factors, exits, n, tl.minimum(size, N // 2), 1, N // 2)
    else:
        _eliminate(q, factors, exits, n, size, 1, N)
    tl.debug_barrier()  # factors were written by other threads of this program
    p = tl.where((i == 0) & (size > 0), 1.0, 0.0).to(q.dtype)
    for k in range(1, size):
        column = tl.load(factors + i * n + k, mask=i < k, other=0.0)
        odds = tl.sum(p * column, 0) / tl.load(exits + k)
        p = tl.where(i == k, odds, p) / (1.0 + odds)
    tl.store(law + b * n + i, p, mask=i < n)


@triton.jit
def _grow(f, factors, exits, p, g, n, bottom, top, N: tl.constexpr):
    """Put states back, from ``bottom`` to ``top`` - 1, with the gradient in their rates."""
    i, r, c = tl.arange(0, N), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    for k in range(bottom, top):
        enter = tl.load(factors + i * n + k, mask=i < k, other=0.0)
        leave = tl.load(factors + k * n + i, mask=i < k, other=0.0)
        here, mass = tl.sum(tl.where(i == k, g, 0.0), 0), tl.sum(tl.where(i == k, p, 0.0), 0)
        column = tl.sum(f * leave[None, :], 1) + p * here
        gain = tl.sum(f * enter[:, None], 0)
        row = (gain - tl.sum(gain * leave, 0)) / tl.load(exits + k) - mass * here
        f = tl.where((c == k) & (r < k), column[:, None], f)
        f = tl.where((r == k) & (c < k), row[None, :], f)
    return f


@triton.jit(do_not_specialize=["n"])
def _pull_back(grad, real, factors, exits, law, scale, flow, n, N: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    i, r, c = tl.arange(0, N), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    size = tl.sum(tl.load(real + b * n + i, mask=i < n, other=0).to(tl.int32), 0)
    factors += b * n * n
    exits += b * n
    law += b * n
    flow += b * n * n
    p = tl.load(law + i, mask=i < size, other=0.0)
    g = tl.load(grad + b * n + i, mask=i < size, other=0.0).to(p.dtype)
    g = tl.where(i < size, g - tl.sum(g * p, 0), 0.0)
    for step in range(1, size):
        k = size - step
        column = tl.load(factors + i * n + k, mask=i < k, other=0.0)
        here = tl.sum(tl.where(i == k, g, 0.0), 0) / tl.load(exits + k)
        g = tl.where(i == k, here, g) + column * here
    f = tl.zeros((N, N), dtype=p.dtype)
    if N > 32:
        i2, r2, c2 = tl.arange(0, N // 2), tl.arange(0, N // 2)[:, None], tl.arange(0, N // 2)[None, :]
        tl.store(flow + i, g, mask=i < n)  # the first row of the result is room for the first half of g
        tl.debug_barrier()
        g2, p2 = tl.load(flow + i2, mask=i2 < n, other=0.0), tl.load(law + i2, mask=i2 < size, other=0.0)
        tl.debug_barrier()
        small = tl.zeros((N // 2, N // 2), dtype=p.dtype)
        small = _grow(small, factors, exits, p2, g2, n, 1, tl.minimum(size, N // 2), N // 2)
        tl.store(flow + r2 * n + c2, small, mask=(r2 < n) & (c2 < n))
        tl.debug_barrier()
        f = tl.load(flow + r * n + c, mask=(r < N // 2) & (c < N // 2) & (r < n) & (c < n), other=0.0)
        tl.debug_barrier()
        f = _grow(f, factors, exits, p, g, n, N // 2, size, N)
    else:
        f = _grow(f, factors, exits, p, g, n, 1, size, N)
    tl.store(flow + r * n + c, f / tl.load(scale + b), mask=(r < n) & (c < n))
