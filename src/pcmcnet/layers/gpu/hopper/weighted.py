"""Sums over pairs that hold all gradients of the last hidden layer: a product weighted by a number for each pair."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from pcmcnet.layers.gpu.hopper.tiles import CHUNK, LAUNCH, ROWS, columns, tiles
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.units import processors


def weighted_products(slopes: Tensor, h: Tensor, gradient: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Return G (H, D) and s (H,): sums over pairs of slopes times h, and of slopes, weighted by the gradient.

    A chunk of pairs is read whole: where there are fewer, h and the gradient (room,) are to be 0.
    """
    room, width = slopes.shape
    across = columns(h.shape[1])
    count = (width // (2 * ROWS.value)) * (h.shape[1] // across)
    parts = min(max(processors(h.device) // count, 1), triton.cdiv(room, CHUNK.value))
    products = torch.empty(parts, width, h.shape[1], device=h.device)
    sums = torch.empty(parts, width, device=h.device)
    launch(
        _weighted_products,
        (count * parts,),
        tiles(slopes, CHUNK.value, ROWS.value),
        tiles(h, CHUNK.value, across),
        gradient,
        products,
        sums,
        bounds,
        room,
        parts,
        width,
        h.shape[1],
        N=across,
        STAGES=4,
        **LAUNCH,
    )
    return products.sum(0), sums.sum(0)


@gluon.jit(do_not_specialize=["room", "parts"])
def _weighted_products(
    slopes, h, gradient, out, sums, bounds, room, parts, H, D, N: gl.constexpr, STAGES: gl.constexpr
):
    """Each program has a tile (2 ROWS, N) of the result, and a part of the pairs."""
    cs = gl.allocate_shared_memory(gl.bfloat16, [2 * STAGES, CHUNK, ROWS], slopes.layout)
    hs = gl.allocate_shared_memory(gl.bfloat16, [STAGES, CHUNK, N], h.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=2)
        mbarrier.init(ready.index(i), count=1)
    across = D // N
    tiles = H // (2 * ROWS) * across
    tile, part = gl.program_id(0) % tiles, gl.program_id(0) // tiles
    m, n = tile // across * 2 * ROWS, tile % across * N
    chunks = gl.cdiv((gl.load(bounds + 1) - gl.load(bounds)).to(gl.int32), CHUNK)
    each = gl.cdiv(chunks, parts)
    begin = gl.where(part * each < chunks, part * each * CHUNK, room)  # beyond the room all is 0
    steps = gl.maximum(gl.minimum(each, chunks - part * each), 1)
    shared = (cs, hs, empty, ready)
    where = (begin, steps, room, m, n, part, H, D)
    gl.warp_specialize(
        [
            (_multiply_half, (0, shared, gradient, out, sums, where, N, STAGES)),
            (_multiply_half, (1, shared, gradient, out, sums, where, N, STAGES)),
            (_bring_pairs, (slopes, h, shared, where, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _bring_pairs(slopes, h, shared, where, STAGES: gl.constexpr):
    cs, hs, empty, ready = shared
    begin, steps, _, m, n, _, _, _ = where
    for i in range(steps):
        at = i % STAGES
        full = ready.index(at)
        mbarrier.wait(empty.index(at), (i // STAGES & 1) ^ 1)
        mbarrier.expect(full, 2 * slopes.block_type.nbytes + h.block_type.nbytes)
        tma.async_copy_global_to_shared(slopes, [begin + i * CHUNK, m], full, cs.index(2 * at))
        tma.async_copy_global_to_shared(h, [begin + i * CHUNK, n], full, hs.index(at))
        tma.async_copy_global_to_shared(slopes, [begin + i * CHUNK, m + ROWS], full, cs.index(2 * at + 1))


@gluon.jit
def _multiply_half(half: gl.constexpr, shared, gradient, out, sums, where, N: gl.constexpr, STAGES: gl.constexpr):
    """Weight a chunk in registers while the product of the chunk before is under way."""
    cs, hs, empty, ready = shared
    begin, steps, room, m, n, part, H, D = where
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    total = gl.zeros((ROWS, N), gl.float32, layout)
    q = begin + gl.arange(0, CHUNK, gl.SliceLayout(0, operand))
    c = _weighted(cs, ready, 0, gl.load(gradient + q, mask=q < room, other=0.0), half, STAGES, operand)
    side = gl.sum(c, 1)
    a = c.to(gl.bfloat16)
    q += CHUNK
    g = gl.load(gradient + q, mask=q < room, other=0.0)
    for i in range(steps - 1):
        total = warpgroup_mma(a, hs.index(i % STAGES), total, is_async=True)
        q += CHUNK
        g_next = gl.load(gradient + q, mask=q < room, other=0.0)
        c = _weighted(cs, ready, i + 1, g, half, STAGES, operand)
        side += gl.sum(c, 1)
        a_next = c.to(gl.bfloat16)
        total, a, a_next = warpgroup_mma_wait(0, deps=(total, a, a_next))
        mbarrier.arrive(empty.index(i % STAGES), count=1)
        a, g = a_next, g_next
    total = warpgroup_mma(a, hs.index((steps - 1) % STAGES), total, is_async=True)
    total, a = warpgroup_mma_wait(0, deps=(total, a))
    u = m + half * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    v = n + gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(out + (part * H + u)[:, None] * D + v[None, :], total)
    if n == 0:
        t = m + half * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, operand))
        gl.store(sums + part * H + t, side)


@gluon.jit
def _weighted(cs, ready, i, g, half: gl.constexpr, STAGES: gl.constexpr, operand: gl.constexpr):
    mbarrier.wait(ready.index(i % STAGES), i // STAGES & 1)
    return cs.index(2 * (i % STAGES) + half).permute((1, 0)).load(operand).to(gl.float32) * g[None, :]
