"""Hidden layers forward, one pass over a tensor of (pairs, H) each.

    spread    h = drop(act(left_r + right_bj))         two thin matrices -> (pairs, H)
    bend      h = drop(act(z + bias))                  a hidden layer between two products
    finish    f = w . drop(act(z + bias)) + shift      the last hidden layer and the output: one number per pair

A row (b, i) is an alternative that is left, with number r = b J + i; a pair (b, i, j) has number r J + j. A piece has
``rows`` of these from ``row0`` on, or ``pairs`` from ``pair0`` on.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl

from pcmcnet.layers.gpu.units import act, drop


@triton.jit(do_not_specialize=["set0", "row0", "rows", "limit", "J"])
def spread(
    left,
    right,
    out,
    seeds,
    set0,
    row0,
    rows,
    J,
    H,
    limit,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    C: tl.constexpr,
    TJ: tl.constexpr,
):
    """Fill (rows, J, H) from ``left`` and ``right`` (B, J, H). Program (units, block of j, set): right is read once."""
    s = tl.program_id(2)
    u, j = tl.program_id(0) * C + tl.arange(0, C), tl.program_id(1) * TJ + tl.arange(0, TJ)
    units = u < H
    here = units[None, :] & (j < J)[:, None]
    seed = tl.load(seeds)
    other = ((set0 + s).to(tl.int64) * J + j)[:, None] * H + u[None, :]
    c = tl.load(right + other, mask=here, other=0.0).to(tl.float32)
    pair = row0.to(tl.int64) * J + j
    left += row0.to(tl.int64) * H
    out += j.to(tl.int64)[:, None] * H + u[None, :]
    stride = J * H + s.to(tl.int64) * 0  # in 64 bits
    first, last = tl.maximum(0, (set0 + s) * J - row0), tl.minimum(rows, (set0 + s + 1) * J - row0)
    for r in tl.range(first, last, num_stages=3):
        h = act(tl.load(left + r * H + u, mask=units, other=0.0).to(tl.float32)[None, :] + c, ACT)
        if DROP:
            h = drop(h, seed, pair + r * J, u, limit)
        tl.store(out + stride * r, h.to(out.dtype.element_ty), mask=here)


@triton.jit
def _bent(z, bias, seeds, layer, pair0, r, u, at, here, H, limit, ACT: tl.constexpr, DROP: tl.constexpr):
    h = act(
        tl.load(z + at, mask=here, other=0.0).to(tl.float32) + tl.load(bias + u, mask=u < H, other=0.0)[None, :], ACT
    )
    if DROP:
        h = drop(h, tl.load(seeds + layer), pair0 + r, u, limit)
    return h


@triton.jit(do_not_specialize=["pair0", "pairs", "layer", "limit"])
def bend(
    z,
    bias,
    out,
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
    """Fill (pairs, H) from what a product gave."""
    u, r = tl.arange(0, C), tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    here = (u < H)[None, :] & (r < pairs)[:, None]
    at = r[:, None] * H + u[None, :]
    h = _bent(z, bias, seeds, layer, pair0, r, u, at, here, H, limit, ACT, DROP)
    tl.store(out + at, h.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["pair0", "pairs", "layer", "limit"])
def finish(
    z,
    bias,
    w,
    shift,
    out,
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
    """Fill in the scores, which are those of all pairs."""
    u, r = tl.arange(0, C), tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    here = (u < H)[None, :] & (r < pairs)[:, None]
    at = r[:, None] * H + u[None, :]
    h = _bent(z, bias, seeds, layer, pair0, r, u, at, here, H, limit, ACT, DROP)
    f = tl.sum(h * tl.load(w + u, mask=u < H, other=0.0)[None, :], 1) + tl.load(shift)
    tl.store(out + pair0 + r, f, mask=r < pairs)
