"""Hidden layers of the pair network in Triton: the linear first layer, then the later layers, forward and backward."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.kernel_launch import launch, wait_for_earlier
from pcmcnet.layers.pairwise.triton.elementwise import activate, activation_backward, drop
from pcmcnet.layers.pairwise.triton.pair_layout import pairs_of, set_of

# -- the linear first layer: both halves in one thin product in bfloat16 -----------------------------------------------
#
#     leave_bi = Wa S_bi + W0 I_b        enter_bj = Wb S_bj + c
#
# A number x is represented by two bfloat16 numbers, the nearest to x and the nearest to the remainder. This keeps 16
# bits, because features of alternatives may differ by little. Weights have 8 bits, as in the hidden layers. The columns
# are therefore
#
#     [I, remainder of I, S, remainder of S, 1]  by  [W0, W0, Wa, Wa, 0]  and  [0, 0, Wb, Wb, c].
#
# Shapes: individual I (B, D0), alternatives S (B, J, D) -> leave and enter (B, J, H).


class FirstLayer(NamedTuple):
    """Inputs and weights of the first layer."""

    individual: Tensor  # (B, D0); D0 may be 0
    alternatives: Tensor  # (B, J, D)
    who: Tensor  # (H, D0)
    leave: Tensor  # (H, D)
    enter: Tensor  # (H, D)
    bias: Tensor  # (H,)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """J, D0, D, and the number of columns, rounded up to a multiple of 8, for which products are fastest."""
        d0, d = self.individual.shape[1], self.alternatives.shape[2]
        return self.alternatives.shape[1], d0, d, (2 * (d0 + d) + 8) // 8 * 8


def packed_inputs(given: FirstLayer) -> Tensor:
    """Return the packed inputs (B J, columns) of the product in the first layer."""
    rows, columns = given.alternatives.shape[0] * given.shape[0], given.shape[-1]
    out = given.leave.new_empty(rows, columns, dtype=torch.bfloat16)
    inputs = (given.individual.contiguous(), given.alternatives.contiguous())
    launch(_pack_inputs, (triton.cdiv(rows, 8),), *inputs, out, rows, *given.shape, **_rows_of(columns))
    return out


def halves(given: FirstLayer, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Compute both halves of the first layer, leave and enter, which are adjacent in memory."""
    places, units = given.shape[0], len(given.bias)
    weights = packed_weights(given, 2 * units)
    both = torch.mm(inputs, weights.t(), out_dtype=torch.float32).view(-1, places, 2 * units)
    return both[..., :units], both[..., units:]


def packed_weights(given: FirstLayer, rows: int) -> Tensor:
    """Return the first rows of the packed weights, (rows, columns): H rows for leave, then H rows for enter."""
    _, *shape = given.shape
    units = len(given.bias)
    weights = given.leave.new_empty(2 * units, shape[-1], dtype=torch.bfloat16)
    layer = tuple(t.contiguous() for t in given[2:])
    launch(_pack_weights, (triton.cdiv(rows, 8),), *layer, weights, units, *shape, **_rows_of(shape[-1]))
    return weights[:rows]


def first_layer_gradients(
    given: FirstLayer, inputs: Tensor, d_halves: Tensor, *, of_inputs: tuple[bool, bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients w.r.t. the first layer, from the bfloat16 gradient w.r.t. both of its halves (B, J, 2 H)."""
    # 1. The gradients of the weights: one product over all alternatives, then its columns are distributed.
    _, *shape = given.shape
    units, both = len(given.bias), d_halves.flatten(0, 1)
    sums = torch.mm(both.t(), inputs, out_dtype=torch.float32)
    layer = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in given[2:]]
    launch(_unpack_weights, (triton.cdiv(units, 8),), sums, *layer, units, *shape, **_rows_of(max(shape[:2])))
    # 2. The gradients of the inputs, if they depend on trainable weights.
    d_individual = d_alternatives = None
    if of_inputs[0]:
        d_individual = d_halves[..., :units].sum(1, dtype=torch.float32) @ given.who
    if of_inputs[1]:
        weights = torch.cat([given.leave, given.enter]).to(both.dtype)
        d_alternatives = torch.mm(both, weights, out_dtype=torch.float32).view_as(given.alternatives)
    return d_individual, d_alternatives, *layer


def _rows_of(width: int) -> dict[str, int]:
    """Return the block shape of the packing kernels: 8 rows of ``width`` numbers."""
    return {"R": 8, "C": triton.next_power_of_2(width), "num_warps": 4}


@triton.jit(do_not_specialize=["rows", "J"])
def _pack_inputs(individual, alternatives, out, rows, J, D0, D, K, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    r, c = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    real = (r < rows) & (c < K)
    s = c - 2 * D0
    rest = tl.where(c < 2 * D0, c >= D0, s >= D)
    x = tl.load(individual + r // J * D0 + c - tl.where(rest, D0, 0), mask=real & (c < 2 * D0), other=0.0)
    x += tl.load(alternatives + r * D + s - tl.where(rest, D, 0), mask=real & (s >= 0) & (s < 2 * D), other=0.0)
    x = tl.where(s == 2 * D, 1.0, x)
    near = x.to(tl.bfloat16)
    value = tl.where(rest & (s < 2 * D), (x - near.to(tl.float32)).to(tl.bfloat16), near)
    tl.store(out + r * K + c, value, mask=real)


@triton.jit
def _pack_weights(who, leave, enter, bias, out, H, D0, D, K, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    r, c = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    real, entered = (r < 2 * H) & (c < K), r >= H
    u, s = tl.where(entered, r - H, r), c - 2 * D0
    at = u * D + s - tl.where(s >= D, D, 0)
    own = real & (s >= 0) & (s < 2 * D)
    w = tl.load(who + u * D0 + c - tl.where(c >= D0, D0, 0), mask=real & (c < 2 * D0) & (r < H), other=0.0)
    w += tl.load(leave + at, mask=own & (r < H), other=0.0)
    w += tl.load(enter + at, mask=own & entered, other=0.0)
    w += tl.load(bias + u + c * 0, mask=real & entered & (s == 2 * D), other=0.0)
    tl.store(out + r * K + c, w.to(tl.bfloat16), mask=real)


@triton.jit
def _unpack_weights(sums, who, leave, enter, bias, H, D0, D, K, R: tl.constexpr, C: tl.constexpr):
    """Reverse ``_pack_weights`` for gradients, by adding the columns of a number and of its remainder."""
    wait_for_earlier()
    u, c = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    known, own, at = (u < H) & (c < D0), (u < H) & (c < D), sums + u * K + c
    tl.store(who + u * D0 + c, tl.load(at, mask=known) + tl.load(at + D0, mask=known), mask=known)
    at += 2 * D0
    tl.store(leave + u * D + c, tl.load(at, mask=own) + tl.load(at + D, mask=own), mask=own)
    at += H * K
    tl.store(enter + u * D + c, tl.load(at, mask=own) + tl.load(at + D, mask=own), mask=own)
    tl.store(bias + u + c, tl.load(at + 2 * D, mask=(u < H) & (c == 0)), mask=(u < H) & (c == 0))


# -- hidden layers, forward: each kernel is one pass over a tensor (pairs, H) ------------------------------------------
#
#     first_hidden   h = drop(act(left_bi + right_bj))    two thin matrices -> (pairs, H)
#     later_hidden   h = drop(act(z + bias))              a hidden layer between two products
#     last_hidden    f = w . drop(act(z + bias))          the last hidden layer and the output: one number per pair
#
# Pairs and their rows are numbered as in `pair_layout`. A chunk has `rows` rows from `row0` on, the first of them in
# the set `set0`, and the pairs within `bounds`.


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
    """Fill the first hidden layer (pairs, H) from ``left`` and ``right`` (B, J, H), whose row strides are E and F.

    The grid is (units, block of j, set), so that ``right`` is read once.
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
    """Fill the hidden layer (room, H) from the result of a product, with zeros after the last pair."""
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
    """Write the scores of the pairs, without the constant shift, to the positions of the pairs in memory."""
    wait_for_earlier()
    u, r = tl.arange(0, C), tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    here = (u < H)[None, :] & (r < room)[:, None]
    at = r[:, None] * H + u[None, :]
    h = _activated(z, bias, seeds, layer, bounds, r, u, at, here, H, limit, ACT, DROP)
    score, pair0 = tl.sum(h * tl.load(w + u, mask=u < H, other=0.0)[None, :], 1), tl.load(bounds)
    tl.store(out + pair0 + r, score, mask=r < tl.load(bounds + 1) - pair0)


# -- hidden layers, backward: each kernel is one pass over a tensor (pairs, H), in the numbering of the forward pass ---
#
# last_hidden_backward    dz = df w drop' act'(z + bias)           and the gradients of w and bias, in parts by program
# later_hidden_backward   dh <- dh drop' act'(z + bias)            and the gradient of the bias, in parts by program
# first_hidden_backward   sums over j and over i of dh drop' act'  (pairs, H) -> two thin matrices


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
    """Backpropagate through the last hidden layer, and write the partial sums ``dw`` and ``db`` (programs, H)."""
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
    """Backpropagate through a hidden layer in place, and write the partial sums ``db`` (programs, H)."""
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
        d = tl.where((r < pairs)[:, None], d, 0.0)  # values after the last pair are arbitrary
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
    """Sum the gradients over j for each i, and over i for each j, on the grid (units, block of j, set).

    A partial sum for each block of real j is written to ``dleft`` (blocks, rows, H). The sums over i are written to
    ``dright`` (sets, J, H), which has row stride D. A chunk may begin and end anywhere in a set: only the rows of the
    set within the chunk are summed.
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
    if row0 > row:  # an earlier chunk holds the first rows of the set
        total += tl.load(dright + other, mask=on, other=0.0)
    tl.store(dright + other, total, mask=on)


@triton.jit(do_not_specialize=["J", "row0", "rows"])
def sum_row_parts(sizes, J, parts, out, row0, rows, H, D, TJ: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """Sum the results of ``first_hidden_backward``: (blocks, rows, H) -> (rows, H) with row stride D, 0 at padding."""
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
