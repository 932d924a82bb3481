"""Hidden layers backward, one pass over a tensor of (pairs, H) each; names and numbers as in ``forward``.

last_hidden_backward    dz = df w drop' act'(z + bias)           and what w and the bias get, in parts by program
later_hidden_backward   dh <- dh drop' act'(z + bias)            and what the bias gets, in parts by program
first_hidden_backward   sums over j and over i of dh drop' act'  (pairs, H) -> two thin matrices
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl

from pcmcnet.layers.gpu.overlap import wait_for_earlier
from pcmcnet.layers.pairwise.triton.activation_dropout import activate, activation_backward, drop
from pcmcnet.layers.pairwise.triton.pair_layout import pairs_of, set_of


@triton.jit(do_not_specialize=["room", "layer", "limit"])
def last_hidden_backward(
    z,
    bias,
    w,
    df,
    dz,
    dw,
    db,
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
    """Go through all pairs with a fixed number of programs; ``dw`` and ``db`` are (programs, H)."""
    wait_for_earlier()
    u, pair0 = tl.arange(0, C), tl.load(bounds)
    c, v = tl.load(bias + u, mask=u < H, other=0.0)[None, :], tl.load(w + u, mask=u < H, other=0.0)[None, :]
    sum_w, sum_b = tl.zeros((R, C), tl.float32), tl.zeros((R, C), tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(room, R), tl.num_programs(0), num_stages=3):
        r = (tile * R + tl.arange(0, R)).to(tl.int64)
        here = (u < H)[None, :] & (r < room)[:, None]
        at = r[:, None] * H + u[None, :]
        x = tl.load(z + at, mask=here, other=0.0).to(tl.float32) + c
        f = tl.load(df + r, mask=r < room, other=0.0)[:, None] + tl.zeros((R, C), tl.float32)
        if DROP:
            f = drop(f, tl.load(seeds + layer), pair0 + r, u, limit)
        sum_w += f * activate(x, ACT)
        d = activation_backward(x, f * v, ACT)
        sum_b += d
        tl.store(dz + at, d.to(dz.dtype.element_ty), mask=here)
    to = tl.program_id(0) * H + u
    tl.store(dw + to, tl.sum(sum_w, 0), mask=u < H)
    tl.store(db + to, tl.sum(sum_b, 0), mask=u < H)


@triton.jit(do_not_specialize=["room", "layer", "limit"])
def later_hidden_backward(
    z,
    bias,
    dh,
    db,
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
    """The same, in place, for a hidden layer between two products."""
    wait_for_earlier()
    u, pair0, pairs = tl.arange(0, C), tl.load(bounds), tl.load(bounds + 1) - tl.load(bounds)
    c = tl.load(bias + u, mask=u < H, other=0.0)[None, :]
    sum_b = tl.zeros((R, C), tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(room, R), tl.num_programs(0), num_stages=3):
        r = (tile * R + tl.arange(0, R)).to(tl.int64)
        here = (u < H)[None, :] & (r < room)[:, None]
        at = r[:, None] * H + u[None, :]
        d = tl.load(dh + at, mask=here, other=0.0).to(tl.float32)
        d = activation_backward(tl.load(z + at, mask=here, other=0.0).to(tl.float32) + c, d, ACT)
        if DROP:
            d = drop(d, tl.load(seeds + layer), pair0 + r, u, limit)
        d = tl.where((r < pairs)[:, None], d, 0.0)  # what comes after the last pair may be anything
        sum_b += d
        tl.store(dh + at, d.to(dh.dtype.element_ty), mask=here)
    tl.store(db + tl.program_id(0) * H + u, tl.sum(sum_b, 0), mask=u < H)


@triton.jit(do_not_specialize=["J", "set0", "row0", "rows", "limit"])
def first_hidden_backward(
    sizes,
    starts,
    J,
    bounds,
    left,
    right,
    dh,
    dleft,
    dright,
    seeds,
    set0,
    row0,
    rows,
    E,
    F,
    H,
    limit,
    D,
    SKIP: tl.constexpr,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    TJ: tl.constexpr,
):
    """Program (units, block of j, set): for each i the sum over its j, and for each of them the sum over i.

    ``dleft`` (blocks, rows, H) has a part for each block of real j; ``dright`` (sets, J, H), with rows D apart, is
    filled.
    A chunk begins and ends anywhere in a set: rows of the set that lie within it take part.
    """
    wait_for_earlier()
    block, b = tl.program_id(1), set0 + tl.program_id(2)
    n, first = set_of(sizes, starts, bounds, b)
    u, j = tl.program_id(0) * C + tl.arange(0, C), block * TJ + tl.arange(0, TJ)
    units = u < H
    seed, pair0 = tl.load(seeds), tl.load(bounds) + first
    row = b.to(tl.int64) * J
    c = tl.load(right + (row + j)[:, None] * F + u[None, :], mask=units[None, :] & (j < n)[:, None], other=0.0).to(
        tl.float32
    )
    total = tl.zeros((TJ, C), tl.float32)
    left += row * E + u
    dleft += ((block.to(tl.int64) * rows) + row - row0) * H + u
    dh += first * H + u[None, :]
    begin, end = tl.maximum(row0 - row, 0).to(tl.int32), tl.minimum(row0 + rows - row, n).to(tl.int32)
    end = tl.where(block * TJ < n, end, begin)
    for i in tl.range(begin, end, num_stages=4):
        at, here = pairs_of(n, i, j, SKIP)
        z = tl.load(left + i * E, mask=units, other=0.0).to(tl.float32)[None, :] + c
        d = tl.load(dh + at.to(tl.int64)[:, None] * H, mask=here[:, None] & units[None, :], other=0.0).to(tl.float32)
        d = activation_backward(z, d, ACT)
        if DROP:
            d = drop(d, seed, pair0 + at, u, limit)
        total += d
        tl.store(dleft + i * H, tl.sum(d, 0), mask=units)
    other, on = (row + j)[:, None] * D + u[None, :], units[None, :] & (j < J)[:, None]
    if row0 > row:  # a chunk before this one began with the set
        total += tl.load(dright + other, mask=on, other=0.0)
    tl.store(dright + other, total, mask=on)


@triton.jit(do_not_specialize=["J", "row0", "rows"])
def sum_row_parts(sizes, J, parts, out, row0, rows, H, D, TJ: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """Add up what ``first_hidden_backward`` left, (blocks, rows, H) -> (rows, H), rows D apart: 0 at padding."""
    wait_for_earlier()
    r, u = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    row = row0 + r.to(tl.int64)
    b = row // J
    n = tl.load(sizes + b, mask=r < rows, other=0)
    n = tl.where(row - b * J < n, n, 0)
    at = r.to(tl.int64)[:, None] * H + u[None, :]
    total = tl.zeros((R, C), tl.float32)
    for block in range(tl.cdiv(tl.max(n, 0), TJ)):
        here = (block * TJ < n)[:, None] & (u < H)[None, :]
        total += tl.load(parts + block * rows.to(tl.int64) * H + at, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row[:, None] * D + u[None, :], total, mask=(r < rows)[:, None] & (u < H)[None, :])
