"""Hidden layers forward, one pass over a tensor of (pairs, H) each.

    first_hidden   h = drop(act(left_bi + right_bj))    two thin matrices -> (pairs, H)
    later_hidden   h = drop(act(z + bias))              a hidden layer between two products
    last_hidden    f = w . drop(act(z + bias))          the last hidden layer and the output: one number per pair

Pairs and the rows they come from are numbered as in ``layout``. A chunk has ``rows`` of these from ``row0`` on, the
first of them in the set ``set0``, and the pairs within ``bounds``.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl

from pcmcnet.layers.gpu.overlap import wait_for_earlier
from pcmcnet.layers.pairwise.triton.activation_dropout import activate, drop
from pcmcnet.layers.pairwise.triton.pair_layout import pairs_of, set_of


@triton.jit(do_not_specialize=["J", "set0", "row0", "rows", "limit"])
def first_hidden(
    sizes,
    starts,
    J,
    bounds,
    left,
    right,
    out,
    seeds,
    set0,
    row0,
    rows,
    E,
    F,
    H,
    limit,
    SKIP: tl.constexpr,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    TJ: tl.constexpr,
):
    """Fill (pairs, H) from ``left`` and ``right`` (B, J, H), whose rows are E and F apart.

    Program (units, block of j, set): right is read once.
    """
    wait_for_earlier()
    b = set0 + tl.program_id(2)
    n, first = set_of(sizes, starts, bounds, b)
    u, j = tl.program_id(0) * C + tl.arange(0, C), tl.program_id(1) * TJ + tl.arange(0, TJ)
    units = u < H
    row = b.to(tl.int64) * J
    c = tl.load(right + (row + j)[:, None] * F + u[None, :], mask=units[None, :] & (j < n)[:, None], other=0.0)
    c = c.to(tl.float32)
    left += row * E + u
    out += first * H + u[None, :]
    seed, pair0 = tl.load(seeds), tl.load(bounds) + first
    begin, end = tl.maximum(row0 - row, 0).to(tl.int32), tl.minimum(row0 + rows - row, n).to(tl.int32)
    end = tl.where(tl.program_id(1) * TJ < n, end, begin)
    for i in tl.range(begin, end, num_stages=3):
        h = activate(tl.load(left + i * E, mask=units, other=0.0).to(tl.float32)[None, :] + c, ACT)
        at, here = pairs_of(n, i, j, SKIP)
        if DROP:
            h = drop(h, seed, pair0 + at, u, limit)
        tl.store(out + at.to(tl.int64)[:, None] * H, h.to(out.dtype.element_ty), mask=here[:, None] & units[None, :])


@triton.jit
def _activated(z, bias, seeds, layer, bounds, r, u, at, here, H, limit, ACT: tl.constexpr, DROP: tl.constexpr):
    h = activate(
        tl.load(z + at, mask=here, other=0.0).to(tl.float32) + tl.load(bias + u, mask=u < H, other=0.0)[None, :], ACT
    )
    if DROP:
        h = drop(h, tl.load(seeds + layer), tl.load(bounds) + r, u, limit)
    return h


@triton.jit(do_not_specialize=["room", "layer", "limit"])
def later_hidden(
    z,
    bias,
    out,
    bounds,
    seeds,
    layer,
    room,
    H,
    limit,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
):
    """Fill (room, H) from what a product gave; with 0 after the last pair."""
    wait_for_earlier()
    u, r = tl.arange(0, C), tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    here = (u < H)[None, :] & (r < room)[:, None]
    at = r[:, None] * H + u[None, :]
    h = _activated(z, bias, seeds, layer, bounds, r, u, at, here, H, limit, ACT, DROP)
    h = tl.where((r < tl.load(bounds + 1) - tl.load(bounds))[:, None], h, 0.0)
    tl.store(out + at, h.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["room", "layer", "limit"])
def last_hidden(
    z,
    bias,
    w,
    out,
    bounds,
    seeds,
    layer,
    room,
    H,
    limit,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
):
    """Fill in the scores of pairs, at their numbers, but for a shift."""
    wait_for_earlier()
    u, r = tl.arange(0, C), tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    here = (u < H)[None, :] & (r < room)[:, None]
    at = r[:, None] * H + u[None, :]
    h = _activated(z, bias, seeds, layer, bounds, r, u, at, here, H, limit, ACT, DROP)
    score, pair0 = tl.sum(h * tl.load(w + u, mask=u < H, other=0.0)[None, :], 1), tl.load(bounds)
    tl.store(out + pair0 + r, score, mask=r < tl.load(bounds + 1) - pair0)
