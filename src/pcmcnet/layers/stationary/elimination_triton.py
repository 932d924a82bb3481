"""The elimination on a CUDA device: one program per set, with the set's matrix in registers.

The steps are the same as in :mod:`elimination`, in the type of the rates: the forward pass never subtracts, so float32
keeps about six digits of every component. Reading one row or one column of a matrix in registers is slow, because each
read is a sum over the whole matrix. Therefore, once half of the states have been removed, the remaining states are
moved to a matrix of half the size. Rows of factors are N numbers apart, and N is a multiple of 4, so that each thread
holds four neighbouring numbers and sums them without communicating with other threads. Shapes: rates (B, n, n), mask
(B, n) -> p (B, n); factors (B, N, N), transposed results of ``eliminate``, exits (B, n).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.kernel_launch import launch, wait_for_earlier
from pcmcnet.layers.stationary.elimination import result_type
from pcmcnet.layers.stationary.gradient import factor_width


def forward(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return p (B, n), and flat tensors for ``backward``: factors, exits, a copy of p, scale."""
    q = rates.to(result_type(rates.dtype)).contiguous()
    sets, n, _ = q.shape
    p = q.new_empty(sets, n)
    sizes = (sets * factor_width(q) ** 2, sets * n, sets * n, sets)
    # The results of an operator must not share memory, so the kernel writes p twice.
    factors, exits, copy, scale = (q.new_empty(size) for size in sizes)
    launch(_solve, (sets,), q, mask.contiguous(), factors, exits, p, copy, scale, n, **_shape(q, 0))
    return p, factors, exits, copy, scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, p: Tensor, scale: Tensor) -> Tensor:
    """Return the gradient w.r.t. the rates (B, n, n), given dL/dp (B, n)."""
    sets, n = mask.shape
    flow, room = factors.new_empty(sets, n, n), factors.new_empty(len(factors) // 4)
    arguments = (grad.contiguous(), mask.contiguous(), factors, exits, p, scale)
    launch(_pull_back, (sets,), *arguments, room, flow, n, **_shape(flow, 1))
    return flow.to(grad.dtype)


def _shape(q: Tensor, way: int) -> dict[str, int]:
    """Return the matrix size and the number of warps. ``way`` is 0 for the forward pass and 1 for the backward pass."""
    width, few = factor_width(q), len(q) <= settings.ELIMINATION_TRITON_FEW_SETS
    warps = (settings.ELIMINATION_TRITON_WARPS_FEW if few else settings.ELIMINATION_TRITON_WARPS_MANY)[width]
    return {"N": width, "num_warps": warps[way] * q.element_size() // 4}


@triton.jit
def _eliminate(q, factors, exits, top, bottom, W: tl.constexpr, N: tl.constexpr):
    """Remove the states from ``top`` - 1 down to ``bottom``, and store their rows and columns as factors."""
    i, r, c = tl.arange(0, N), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    sums = tl.full((N,), 1.0, q.dtype)
    for step in range(1, top - bottom + 1):
        k = top - step
        row = tl.sum(tl.where((r == k) & (c < k), q, 0.0), 0)
        column = tl.sum(tl.where((c == k) & (r < k), q, 0.0), 1)
        leaving = tl.sum(row, 0)
        q += column[:, None] * (row / leaving)[None, :]
        sums = tl.where(i == k, leaving, sums)
    tl.store(exits + i, sums, mask=(i >= bottom) & (i < top))
    q = tl.where((r >= bottom) & (c < r), q / sums[:, None], q)
    tl.store(factors + c * W + r, q)
    tl.debug_barrier()  # other threads of this program read the factors


@triton.jit(do_not_specialize=["n"])
def _solve(rates, real, factors, exits, copy, law, scale, n, N: tl.constexpr):
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    i, r, c = tl.arange(0, N), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    size = tl.sum(tl.load(real + b * n + i, mask=i < n, other=0).to(tl.int32), 0)
    rates += b * n * n
    factors += b * N * N
    exits += b * n
    q = tl.load(rates + r * n + c, mask=(r < size) & (c < size) & (r != c), other=0.0)
    largest = tl.max(tl.max(q, 1), 0)
    largest = tl.where(largest > 0, largest, 1.0)
    tl.store(scale + b, largest)
    tl.store(factors + r * N + c, q / largest)
    tl.debug_barrier()
    q = tl.load(factors + r * N + c)  # now each thread holds four neighbours
    tl.debug_barrier()
    if N > 32:
        half = tl.minimum(size, N // 2)
        _eliminate(q, factors, exits, size, half, N, N)
        r2, c2 = tl.arange(0, N // 2)[:, None], tl.arange(0, N // 2)[None, :]
        rest = tl.load(factors + c2 * N + r2)
        tl.debug_barrier()
        _eliminate(rest, factors, exits, half, 1, N, N // 2)
    else:
        _eliminate(q, factors, exits, size, 1, N, N)
    p = tl.where((i == 0) & (size > 0), 1.0, 0.0).to(q.dtype)
    column, leaving = _column(factors, exits, N, 1, size > 1, N)
    for k in range(1, size):
        following = _column(factors, exits, N, k + 1, k + 1 < size, N)  # loaded while this column is used
        odds = tl.sum(p * column, 0) / leaving
        p = tl.where(i == k, odds, p) / (1.0 + odds)
        column, leaving = following
    tl.store(law + b * n + i, p, mask=i < n)
    tl.store(copy + b * n + i, p, mask=i < n)


@triton.jit
def _column(factors, exits, W: tl.constexpr, k, real, N: tl.constexpr):
    """Load the rates of entering state k, and its exit rate."""
    i = tl.arange(0, N)
    column = tl.load(factors + k * W + i, mask=(i < k) & real, other=0.0)
    return column, tl.load(exits + k, mask=real, other=1.0)


@triton.jit
def _state(factors, exits, law, g, W: tl.constexpr, k, real, N: tl.constexpr):
    """Load all factors of state k: a column (N, 1), a row (1, N), and three numbers."""
    r, c = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    enter = tl.load(factors + k * W + r, mask=(r < k) & real, other=0.0)
    leave = tl.load(factors + c * W + k, mask=(c < k) & real, other=0.0)
    leaving = tl.load(exits + k, mask=real, other=1.0)
    return enter, leave, leaving, tl.load(law + k, mask=real, other=0.0), tl.load(g + k, mask=real, other=0.0)


@triton.jit
def _grow(f, factors, exits, law, g, bottom, top, W: tl.constexpr, N: tl.constexpr):
    """Restore the states from ``bottom`` to ``top`` - 1, and compute the gradient w.r.t. their rates."""
    r, c = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    p = tl.load(law + r, mask=r < top, other=0.0)
    enter, leave, leaving, mass, here = _state(factors, exits, law, g, W, bottom, bottom < top, N)
    for k in range(bottom, top):
        following = _state(factors, exits, law, g, W, k + 1, k + 1 < top, N)
        column = tl.sum(f * leave, 1, keep_dims=True) + p * here
        gain = tl.sum(f * enter, 0, keep_dims=True)
        row = (gain - tl.sum(gain * leave, 1, keep_dims=True)) / leaving - mass * here
        f = tl.where((c == k) & (r < k), column, f)
        f = tl.where((r == k) & (c < k), row, f)
        enter, leave, leaving, mass, here = following
    return f


@triton.jit(do_not_specialize=["n"])
def _pull_back(grad, real, factors, exits, law, scale, room, flow, n, N: tl.constexpr):
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    i, r, c = tl.arange(0, N), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    size = tl.sum(tl.load(real + b * n + i, mask=i < n, other=0).to(tl.int32), 0)
    factors += b * N * N
    room += b * N * N // 4
    exits += b * n
    law += b * n
    flow += b * n * n
    p = tl.load(law + i, mask=i < size, other=0.0)
    g = tl.load(grad + b * n + i, mask=i < size, other=0.0).to(p.dtype)
    g = tl.where(i < size, g - tl.sum(g * p, 0), 0.0)
    column, leaving = _column(factors, exits, N, size - 1, size > 1, N)
    for step in range(1, size):
        k = size - step
        following = _column(factors, exits, N, k - 1, k > 1, N)
        here = tl.sum(tl.where(i == k, g, 0.0), 0) / leaving
        g = tl.where(i == k, here, g) + column * here
        column, leaving = following
    tl.store(flow + i, g, mask=i < n)  # the first row of the result serves as memory for g
    tl.debug_barrier()
    if N > 32:
        r2, c2 = tl.arange(0, N // 2)[:, None], tl.arange(0, N // 2)[None, :]
        small = tl.zeros((N // 2, N // 2), dtype=p.dtype)
        small = _grow(small, factors, exits, law, flow, 1, tl.minimum(size, N // 2), N, N // 2)
        tl.store(room + r2 * (N // 2) + c2, small)
        tl.debug_barrier()
        f = tl.load(room + r * (N // 2) + c, mask=(r < N // 2) & (c < N // 2), other=0.0)
        f = _grow(f, factors, exits, law, flow, N // 2, size, N, N)
    else:
        f = _grow(tl.zeros((N, N), dtype=p.dtype), factors, exits, law, flow, 1, size, N, N)
    tl.debug_barrier()
    tl.store(flow + r * n + c, f / tl.load(scale + b), mask=(r < n) & (c < n))
