"""Scores from the last hidden layer: a product, and on each of its tiles, while at hand, the rest of the layer."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from pcmcnet.layers.gpu.hopper.product import (
    bring_tiles,
    copy_out,
    drop_units,
    in_two,
    multiply,
    numbers_of_pairs,
    shared_memory,
)
from pcmcnet.layers.gpu.hopper.tiles import CHUNK, LAUNCH, ROWS, SLOPES, columns, tiles
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.units import numbers_of_units, processors


def finish_product(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    w: Tensor,
    parts: Tensor,
    *,
    activation: str,
    bounds: Tensor,
    dropout: tuple[Tensor, int, int],
    keep: bool,
    spare: int = 0,
) -> Tensor:
    """Fill in parts of the scores (parts, all pairs); returns the slopes (room, H), if they are to be kept.

    ``dropout``: seeds, which of them is the layer's, and limit, which is 0 for no dropout. ``spare`` processors are
    left to other kernels.
    """
    seeds, layer, limit = dropout
    width = columns(len(weight))
    slopes = h.new_empty(len(h) if keep else 0, len(weight))
    launch(
        _finish_product,
        (max(processors(h.device) - spare, 1),),
        tiles(h, ROWS.value, CHUNK.value),
        tiles(weight, width, CHUNK.value),
        tiles(slopes if keep else h, ROWS.value, width // 2),
        bias,
        w,
        numbers_of_units(len(weight), h.device),
        parts,
        bounds,
        seeds,
        layer,
        parts.shape[1],
        len(weight),
        h.shape[1],
        limit,
        SLOPE=SLOPES[activation],
        KEEP=keep,
        DROP=limit != 0,
        N=width,
        **LAUNCH,
    )
    return slopes


def parts(weight: Tensor) -> int:
    """Return how many parts scores come in: one for each tile across the units."""
    return len(weight) // columns(len(weight))


@gluon.jit(do_not_specialize=["layer", "room", "limit"])
def _finish_product(
    h,
    weight,
    slopes,
    bias,
    w,
    numbers,
    out,
    bounds,
    seeds,
    layer,
    room,
    H,
    D,
    limit,
    SLOPE: gl.constexpr,
    KEEP: gl.constexpr,
    DROP: gl.constexpr,
    N: gl.constexpr,
):
    """Multiply (pairs, D) by (H, D)^T in tiles (2 ROWS, N); ``out`` (tiles across, room) gets parts of the scores.

    Rows are those of a piece, which begins with the pair ``bounds`` tells; scores stand at the numbers of pairs.
    """
    shared = shared_memory(h, weight, slopes, KEEP, N)
    layer_of = (bias, w, numbers, out, seeds + layer, room, limit)
    shape = (bounds, H // N, D // CHUNK)
    gl.warp_specialize(
        [
            (_finish_half, (0, shared, slopes, layer_of, shape, SLOPE, KEEP, DROP, N)),
            (_finish_half, (1, shared, slopes, layer_of, shape, SLOPE, KEEP, DROP, N)),
            (bring_tiles, (h, weight, shared, shape, N)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _finish_half(
    half: gl.constexpr,
    shared,
    slopes,
    layer_of,
    shape,
    SLOPE: gl.constexpr,
    KEEP: gl.constexpr,
    DROP: gl.constexpr,
    N: gl.constexpr,
):
    bias, w, numbers, out, seed, room, limit = layer_of
    bounds, across, chunks = shape
    pair0 = gl.load(bounds)
    pairs = (gl.load(bounds + 1) - pair0).to(gl.int32)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    columns: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N // 2, 16])
    i = 0
    for tile in range(gl.program_id(0), gl.cdiv(pairs, 2 * ROWS) * across, gl.num_programs(0)):
        m, n = tile // across * 2 * ROWS + half * ROWS, tile % across * N
        x, i = multiply(half, shared, chunks, i, layout, N)
        p = m + gl.arange(0, ROWS, gl.SliceLayout(1, columns))
        a, b = numbers_of_pairs(pair0 + p, seed)
        score = gl.zeros((ROWS,), gl.float32, gl.SliceLayout(1, columns))
        sides = in_two(x, N, columns)
        for side in gl.static_range(2):  # while one is copied out, the other is worked on
            first = n + side * (N // 2)
            u = first + gl.arange(0, N // 2, gl.SliceLayout(0, columns))
            y = sides[side] + gl.load(bias + u)[None, :]
            f = gl.maximum(y, SLOPE * y)
            if DROP:
                f = drop_units(f, a, b, numbers + u, limit)
            score += gl.sum(f * gl.load(w + u)[None, :], 1)
            if KEEP:
                copy_out(_slopes_of(f, SLOPE), slopes, m, first, shared[2].index(half))
        gl.store(out + (tile % across).to(gl.int64) * room + pair0 + p, score, mask=p < pairs)
    tma.store_wait(0)


@gluon.jit
def _slopes_of(f, SLOPE: gl.constexpr):
    """Return 1 where f > 0, the slope below 0 where f < 0, and 0 where a unit was dropped; two units at a time."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 zero, up, down;
        mov.b32 zero, 0;
        set.gt.bf16x2.bf16x2 up, $1, zero;
        set.lt.bf16x2.bf16x2 down, $1, zero;
        fma.rn.bf16x2 $0, down, $2, up;
        }""",
        "=r,r,r",
        [f.to(gl.bfloat16), gl.full_like(f, 0.01 if SLOPE > 0 else 0.0).to(gl.bfloat16)],
        dtype=gl.bfloat16,
        is_pure=True,
        pack=2,
    )
