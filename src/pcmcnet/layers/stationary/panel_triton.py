"""Steps of the blocked elimination inside one panel of states, on a CUDA device: one program per set.

The functions are the same as in :mod:`panel`. The matrix of a panel is in registers. The rows that link the panel to
the states below are read from memory, ``COLUMNS`` columns at a time. Shapes: q and flow (B, n, n), contiguous; exits,
mask, p and pb (B, n); matrices of a panel (B, P, P).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.kernel_launch import launch, wait_for_earlier

COLUMNS = 128  # states below the panel whose rates are read at a time


def panel_width() -> int:
    """Return the number of states of a panel."""
    return settings.ELIMINATION_TRITON_BLOCK_STATES


def eliminate_panel(q: Tensor, exits: Tensor, mask: Tensor, m: int, top: int) -> None:
    """Write the factors of the panel to q[P, P], and the rates of leaving each state for lower states to exits[P]."""
    launch(_take_out, (len(q),), q, exits, mask, q.shape[1], m, top - m, C=COLUMNS, **_sizes())


def triangular_inverses(q: Tensor, exits: Tensor, m: int, top: int) -> tuple[Tensor, Tensor]:
    """Return the inverses of D - U and of I - L, neither of which has a negative entry."""
    upper, lower = (q.new_empty(len(q), panel_width(), panel_width()) for _ in range(2))
    launch(_inverses, (len(q),), q, exits, upper, lower, q.shape[1], m, top - m, **_sizes())
    return upper[:, : top - m, : top - m], lower[:, : top - m, : top - m]


def restore_panel(q: Tensor, exits: Tensor, p: Tensor, inflow: Tensor, m: int, top: int) -> None:  # inflow (B, b)
    """Extend the distribution p[:m], which sums to 1, to the panel, given the flow from these states into the panel."""
    launch(_put_back, (len(q),), q, exits, p, inflow.contiguous(), q.shape[1], m, top - m, C=COLUMNS, **_sizes())


def finish_gradient(flow: Tensor, q: Tensor, exits: Tensor, pb: Tensor, upper: Tensor, m: int, top: int) -> None:
    """Complete the rows of the panel in the gradient, in place.

    The rows already hold the contributions of the states below the panel and, right of the diagonal, p_i b_k. With
    A = q[P, P] and the jump probabilities l, the row f_k of each state k in turn satisfies

        s_k f_k = r_k + sum_{i<k} a_ik f_i - (s_k p_k b_k + l_k . (r_k + sum_{i<k} a_ik f_i)) 1.

    So it is enough to compute the numbers in brackets, one state at a time, from dot products of rows. One matrix
    product then gives all rows. The means l_k . r_k are subtracted from the r_k first. The equation removes these means
    in any case, but subtracting them first avoids cancellation in the gradients of groups of states that rarely mix.
    """
    rows, leave = flow[:, m:top, :m], q[:, m:top, :top].tril(m - 1)
    means = (flow[:, m:top, :top] * leave).sum(2)  # (B, b)
    rows -= means[:, :, None]
    links, below = rows @ leave[:, :, :m].mT, leave[:, :, :m].sum(2)  # (B, b, b), (B, b)
    losses = torch.empty_like(means)
    vectors = (exits, pb, means, links, below, losses)
    launch(_finish, (len(q),), flow, q, *vectors, q.shape[1], m, top - m, **_sizes())
    rows.copy_(upper.mT @ (rows - losses[:, :, None]))


def _sizes() -> dict[str, int]:
    return {"P": panel_width(), "num_warps": settings.ELIMINATION_TRITON_WARPS}


@triton.jit
def _at(vector, k, P: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, P) == k, vector, 0.0), 0)


@triton.jit(do_not_specialize=["n", "m", "size"])
def _take_out(q, exits, real, n, m, size, P: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    i, r, c = tl.arange(0, P), tl.arange(0, P)[:, None], tl.arange(0, P)[None, :]
    rows = q + b * n * n + m * n
    a = tl.load(rows + r * n + m + c, mask=(r < size) & (c < size) & (r != c), other=0.0)
    below = tl.zeros((P,), dtype=a.dtype)
    for first in range(0, m, C):
        j = first + tl.arange(0, C)[None, :]
        below += tl.sum(tl.load(rows + r * n + j, mask=(r < size) & (j < m), other=0.0), 1)
    present = tl.load(real + b * n + m + i, mask=i < size, other=0).to(a.dtype)
    leaving = 1.0 - present  # padding: any positive number will do
    for step in range(1, size + 1):
        k = size - step
        row = tl.sum(tl.where((r == k) & (c < k), a, 0.0), 0)
        column = tl.sum(tl.where((c == k) & (r < k), a, 0.0), 1)
        out = _at(below, k, P)
        s = _at(leaving, k, P) + out + tl.sum(row, 0)
        row = row / s
        a = tl.where((r == k) & (c < k), row[None, :], a + column[:, None] * row[None, :])
        below += column * (out / s)
        leaving = tl.where(i == k, s, leaving)
    tl.store(rows + r * n + m + c, a, mask=(r < size) & (c < size))
    tl.store(exits + b * n + m + i, leaving, mask=i < size)


@triton.jit(do_not_specialize=["n", "m", "size"])
def _inverses(q, exits, upper, lower, n, m, size, P: tl.constexpr):
    """Compute the inverses row by row: (D - U)^-1 from the last row, (I - L)^-1 from the first."""
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    i, r, c = tl.arange(0, P), tl.arange(0, P)[:, None], tl.arange(0, P)[None, :]
    a = tl.load(q + b * n * n + (m + r) * n + m + c, mask=(r < size) & (c < size) & (r != c), other=0.0)
    leaving = tl.load(exits + b * n + m + i, mask=i < size, other=1.0)
    up, low = tl.zeros((P, P), dtype=a.dtype), tl.zeros((P, P), dtype=a.dtype)
    for k in range(P):
        row = tl.sum(tl.where((r == k) & (c < k), a, 0.0), 0)
        low = tl.where(r == k, tl.sum(low * row[:, None], 0)[None, :] + tl.where(c == k, 1.0, 0.0), low)
        k = P - 1 - k
        row = tl.sum(tl.where((r == k) & (c > k), a, 0.0), 0)
        sums = tl.sum(up * row[:, None], 0)[None, :] + tl.where(c == k, 1.0, 0.0)
        up = tl.where(r == k, sums / _at(leaving, k, P), up)
    tl.store(upper + (b * P + r) * P + c, up)
    tl.store(lower + (b * P + r) * P + c, low)


@triton.jit(do_not_specialize=["n", "m", "size"])
def _put_back(q, exits, p, inflow, n, m, size, P: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, P)
    q += b * n * n + m * n + m
    p += b * n
    enter = tl.load(inflow + b * size + i, mask=i < size, other=0.0)
    leaving = tl.load(exits + b * n + m + i, mask=i < size, other=1.0)
    law, below = tl.zeros((P,), dtype=enter.dtype), 1.0 + tl.zeros((1,), dtype=enter.dtype)
    for k in range(size):
        column = tl.load(q + i * n + k, mask=i < k, other=0.0)
        odds = (tl.sum(below, 0) * _at(enter, k, P) + tl.sum(law * column, 0)) / _at(leaving, k, P)
        law = tl.where(i == k, odds, law) / (1.0 + odds)
        below = below / (1.0 + odds)
    tl.store(p + m + i, law, mask=i < size)
    for first in range(0, m, C):
        j = first + tl.arange(0, C)
        tl.store(p + j, tl.load(p + j, mask=j < m, other=0.0) * tl.sum(below, 0), mask=j < m)


@triton.jit(do_not_specialize=["n", "m", "size"])
def _finish(flow, q, exits, pb, means, links, below, losses, n, m, size, P: tl.constexpr):
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    i, r, c = tl.arange(0, P), tl.arange(0, P)[:, None], tl.arange(0, P)[None, :]
    inside = (r < size) & (c < size)
    flow += b * n * n + m * n + m
    a = tl.load(q + b * n * n + (m + r) * n + m + c, mask=inside & (r != c), other=0.0)
    leaving = tl.load(exits + b * n + m + i, mask=i < size, other=1.0)
    loss = leaving * tl.load(pb + b * n + m + i, mask=i < size, other=0.0)
    mean = tl.load(means + b * size + i, mask=i < size, other=0.0)
    out = tl.load(below + b * size + i, mask=i < size, other=0.0)
    f = tl.load(flow + r * n + c, mask=inside & (r != c), other=0.0)
    f = tl.where(r > c, f - mean[:, None], f)
    d = tl.load(
        links + (b * size + r) * size + c, mask=inside, other=0.0
    )  # l_c . r_r, and l_c . f_r once row r is done
    for k in range(size):
        enter = tl.sum(tl.where((c == k) & (r < k), a, 0.0), 1)
        leave = tl.sum(tl.where((r == k) & (c < k), a, 0.0), 0)
        along = tl.sum(tl.where((c == k) & (r < k), d, 0.0), 1)
        f = tl.where((c == k) & (r < k), f + (along + tl.sum(f * leave[None, :], 1))[:, None], f)
        enter += tl.where(i == k, 1.0, 0.0)
        gain, link = tl.sum(f * enter[:, None], 0), tl.sum(d * enter[:, None], 0)
        lose = _at(loss, k, P) + _at(link, k, P) + tl.sum(gain * leave, 0)
        s = _at(leaving, k, P)
        f = tl.where((r == k) & (c < k), ((gain - lose) / s)[None, :], f)
        d = tl.where(r == k, ((link - lose * out) / s)[None, :], d)
        loss = tl.where(i == k, lose, loss)
    tl.store(flow + r * n + c, f, mask=inside & (r != c))
    tl.store(losses + b * size + i, loss, mask=i < size)
