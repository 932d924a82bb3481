"""Hidden layers backward, one pass over a tensor of (pairs, H) each; names and numbers as in ``forward``.

unfinish  dz = df w drop' act'(z + bias)           and what w and the bias get, in parts by program
unbend    dh <- dh drop' act'(z + bias)            and what the bias gets, in parts by program
gather    sums over j and over i of dh drop' act'  (pairs, H) -> two thin matrices

With SCALED, what comes as dh is yet to be multiplied by a number for each pair, df.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl

from pcmcnet.layers.gpu.units import act, drop, slope


@triton.jit(do_not_specialize=["pair0", "pairs", "layer", "limit"])
def unfinish(
    z,
    bias,
    w,
    df,
    dz,
    dw,
    db,
    seeds,
    layer,
    pair0,
    pairs,
    H,
    limit,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
):
    """Go through all pairs with a fixed number of programs; ``dw`` and ``db`` are (programs, H)."""
    u = tl.arange(0, C)
    c, v = tl.load(bias + u, mask=u < H, other=0.0)[None, :], tl.load(w + u, mask=u < H, other=0.0)[None, :]
    sum_w, sum_b = tl.zeros((R, C), tl.float32), tl.zeros((R, C), tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(pairs, R), tl.num_programs(0), num_stages=3):
        r = (tile * R + tl.arange(0, R)).to(tl.int64)
        here = (u < H)[None, :] & (r < pairs)[:, None]
        at = r[:, None] * H + u[None, :]
        x = tl.load(z + at, mask=here, other=0.0).to(tl.float32) + c
        f = tl.load(df + pair0 + r, mask=r < pairs, other=0.0)[:, None] + tl.zeros((R, C), tl.float32)
        if DROP:
            f = drop(f, tl.load(seeds + layer), pair0 + r, u, limit)
        sum_w += f * act(x, ACT)
        d = f * v * slope(x, ACT)
        sum_b += d
        tl.store(dz + at, d.to(dz.dtype.element_ty), mask=here)
    to = tl.program_id(0) * H + u
    tl.store(dw + to, tl.sum(sum_w, 0), mask=u < H)
    tl.store(db + to, tl.sum(sum_b, 0), mask=u < H)


@triton.jit(do_not_specialize=["pair0", "pairs", "layer", "limit"])
def unbend(
    z,
    bias,
    df,
    dh,
    db,
    seeds,
    layer,
    pair0,
    pairs,
    H,
    limit,
    SCALED: tl.constexpr,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
):
    """The same, in place, for a hidden layer between two products."""
    u = tl.arange(0, C)
    c = tl.load(bias + u, mask=u < H, other=0.0)[None, :]
    sum_b = tl.zeros((R, C), tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(pairs, R), tl.num_programs(0), num_stages=3):
        r = (tile * R + tl.arange(0, R)).to(tl.int64)
        here = (u < H)[None, :] & (r < pairs)[:, None]
        at = r[:, None] * H + u[None, :]
        d = tl.load(dh + at, mask=here, other=0.0).to(tl.float32)
        d *= slope(tl.load(z + at, mask=here, other=0.0).to(tl.float32) + c, ACT)
        if SCALED:
            d *= tl.load(df + pair0 + r, mask=r < pairs, other=0.0)[:, None]
        if DROP:
            d = drop(d, tl.load(seeds + layer), pair0 + r, u, limit)
        sum_b += d
        tl.store(dh + at, d.to(dh.dtype.element_ty), mask=here)
    tl.store(db + tl.program_id(0) * H + u, tl.sum(sum_b, 0), mask=u < H)


@triton.jit(do_not_specialize=["row0", "rows", "set0", "limit", "J"])
def gather(
    left,
    right,
    df,
    dh,
    dleft,
    dright,
    seeds,
    set0,
    row0,
    rows,
    J,
    H,
    limit,
    SCALED: tl.constexpr,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    TJ: tl.constexpr,
):
    """Program (units, block of j, set): for each i the sum over its j, and for each of them the sum over i.

    ``dleft`` (blocks, rows, H) has a part for each block of j; ``dright`` (sets, J, H) is added to.
    A piece begins and ends anywhere in a set: rows of the set that lie within it take part.
    """
    block, s = tl.program_id(1), tl.program_id(2)
    u, j = tl.program_id(0) * C + tl.arange(0, C), block * TJ + tl.arange(0, TJ)
    units = u < H
    here = units[None, :] & (j < J)[:, None]
    b = (set0 + s).to(tl.int64)
    seed = tl.load(seeds)
    pair = row0.to(tl.int64) * J + j  # of the first row
    other = (b * J + j)[:, None] * H + u[None, :]
    c = tl.load(right + other, mask=here, other=0.0).to(tl.float32)
    total = tl.zeros((TJ, C), tl.float32)
    left += row0.to(tl.int64) * H
    dh += j.to(tl.int64)[:, None] * H + u[None, :]
    dleft += block.to(tl.int64) * rows * H + u
    stride = J * H + block.to(tl.int64) * 0  # in 64 bits
    first, last = tl.maximum(0, (set0 + s) * J - row0), tl.minimum(rows, (set0 + s + 1) * J - row0)
    for r in tl.range(first, last, num_stages=4):
        z = tl.load(left + r * H + u, mask=units, other=0.0).to(tl.float32)[None, :] + c
        d = tl.load(dh + (stride * r), mask=here, other=0.0).to(tl.float32) * slope(z, ACT)
        if SCALED:
            d *= tl.load(df + pair + r * J, mask=j < J, other=0.0)[:, None]
        if DROP:
            d = drop(d, seed, pair + r * J, u, limit)
        total += d
        tl.store(dleft + r * H, tl.sum(d, 0), mask=units)
    total += tl.load(dright + other, mask=here, other=0.0)
    tl.store(dright + other, total, mask=here)
