"""Scores from the last hidden layer: a product, and on each of its tiles, while at hand, the rest of the layer."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from pcmcnet.layers.gpu.hopper.tiles import CHUNK, LAUNCH, ROWS, SLOPES, columns, tiles
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.units import numbers_of_units, processors, scramble


def finish_product(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    w: Tensor,
    *,
    activation: str,
    bounds: Tensor,
    dropout: tuple[Tensor, int, int],
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Return parts of the scores of pairs (parts, room) and, if they are to be kept, the slopes (room, H).

    ``dropout``: seeds, which of them is the layer's, and limit, which is 0 for no dropout.
    """
    seeds, layer, limit = dropout
    width = columns(len(weight))
    parts = torch.empty(len(weight) // width, len(h), device=h.device)
    slopes = h.new_empty(len(h) if keep else 0, len(weight))
    launch(
        _finish_product,
        (processors(h.device),),
        tiles(h, ROWS.value, CHUNK.value),
        tiles(weight, width, CHUNK.value),
        tiles(slopes if keep else h, ROWS.value, width),
        bias,
        w,
        numbers_of_units(len(weight), h.device),
        parts,
        bounds,
        seeds,
        layer,
        len(h),
        len(weight),
        h.shape[1],
        limit,
        SLOPE=SLOPES[activation],
        KEEP=keep,
        DROP=limit != 0,
        N=width,
        STAGES=3 if keep else 4,
        **LAUNCH,
    )
    return parts, slopes


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
    STAGES: gl.constexpr,
):
    """Multiply (pairs, D) by (H, D)^T in tiles (2 ROWS, N); ``out`` (tiles across, room) gets parts of the scores."""
    hs = gl.allocate_shared_memory(gl.bfloat16, [2 * STAGES, ROWS, CHUNK], h.layout)
    ws = gl.allocate_shared_memory(gl.bfloat16, [STAGES, N, CHUNK], weight.layout)
    kept = gl.allocate_shared_memory(gl.bfloat16, [2, ROWS if KEEP else 8, N], slopes.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=2)
        mbarrier.init(ready.index(i), count=1)
    shared = (hs, ws, kept, empty, ready)
    layer_of = (bias, w, numbers, out, seeds + layer, bounds, room, limit)
    shape = (bounds, H // N, D // CHUNK)
    gl.warp_specialize(
        [
            (_finish_half, (0, shared, slopes, layer_of, shape, SLOPE, KEEP, DROP, N, STAGES)),
            (_finish_half, (1, shared, slopes, layer_of, shape, SLOPE, KEEP, DROP, N, STAGES)),
            (_bring_tiles, (h, weight, shared, shape, N, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _bring_tiles(h, weight, shared, shape, N: gl.constexpr, STAGES: gl.constexpr):
    hs, ws, _, empty, ready = shared
    bounds, across, chunks = shape
    pairs = (gl.load(bounds + 1) - gl.load(bounds)).to(gl.int32)
    i = 0
    for tile in range(gl.program_id(0), gl.cdiv(pairs, 2 * ROWS) * across, gl.num_programs(0)):
        m, n = tile // across * 2 * ROWS, tile % across * N
        for k in range(chunks):
            at = i % STAGES
            full = ready.index(at)
            mbarrier.wait(empty.index(at), (i // STAGES & 1) ^ 1)
            mbarrier.expect(full, 2 * h.block_type.nbytes + weight.block_type.nbytes)
            tma.async_copy_global_to_shared(h, [m, k * CHUNK], full, hs.index(2 * at))
            tma.async_copy_global_to_shared(weight, [n, k * CHUNK], full, ws.index(at))
            tma.async_copy_global_to_shared(h, [m + ROWS, k * CHUNK], full, hs.index(2 * at + 1))
            i += 1


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
    STAGES: gl.constexpr,
):
    hs, ws, kept, empty, ready = shared
    bias, w, numbers, out, seed, bounds, room, limit = layer_of
    _, across, chunks = shape
    pair0 = gl.load(bounds)
    pairs = (gl.load(bounds + 1) - pair0).to(gl.int32)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    i = 0
    for tile in range(gl.program_id(0), gl.cdiv(pairs, 2 * ROWS) * across, gl.num_programs(0)):
        m, n = tile // across * 2 * ROWS + half * ROWS, tile % across * N
        x = gl.zeros((ROWS, N), gl.float32, layout)
        for k in range(chunks):
            at = i % STAGES
            mbarrier.wait(ready.index(at), i // STAGES & 1)
            x = warpgroup_mma(hs.index(2 * at + half), ws.index(at).permute((1, 0)), x, is_async=True)
            x = warpgroup_mma_wait(1, deps=(x,))
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1, pred=k > 0)  # the one before is done
            i += 1
        x = warpgroup_mma_wait(0, deps=(x,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1)
        p = m + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        u = n + gl.arange(0, N, gl.SliceLayout(0, layout))
        x += gl.load(bias + u)[None, :]
        f = gl.maximum(x, SLOPE * x)
        if DROP:
            a = scramble((pair0 + p).to(gl.uint32) ^ gl.load(seed).to(gl.uint32))
            b = scramble(a + 0x9E3779B9) | 1
            c = gl.load(numbers + u).to(gl.uint32)
            f = gl.where(a[:, None] + b[:, None] * c[None, :] >= limit.to(gl.uint32), f, 0.0)
        if KEEP:
            tma.store_wait(0)
            kept.index(half).store(_slopes_of(f, SLOPE))
            fence_async_shared()
            tma.async_copy_shared_to_global(slopes, [m, n], kept.index(half))
        f = gl.sum(f * gl.load(w + u)[None, :], 1)
        gl.store(out + (tile % across) * room + p, f, mask=p < pairs)
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
