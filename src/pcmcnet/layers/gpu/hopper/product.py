"""The product that two kernels are built around: (pairs, D) by (H, D)^T, tile by tile, and what becomes of a tile."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from pcmcnet.layers.gpu.hopper.tiles import CHUNK, ROWS
from pcmcnet.layers.gpu.units import scramble

STAGES = gl.constexpr(4)  # chunks that are copied ahead


@gluon.jit
def shared_memory(h, weight, result, KEEP: gl.constexpr, N: gl.constexpr):
    """Return room for chunks of both operands, for half the columns of a tile of the result, and the barriers."""
    hs = gl.allocate_shared_memory(gl.bfloat16, [2 * STAGES, ROWS, CHUNK], h.layout)
    ws = gl.allocate_shared_memory(gl.bfloat16, [STAGES, N, CHUNK], weight.layout)
    kept = gl.allocate_shared_memory(gl.bfloat16, [2, ROWS if KEEP else 8, N // 2], result.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=2)
        mbarrier.init(ready.index(i), count=1)
    return hs, ws, kept, empty, ready


@gluon.jit
def bring_tiles(h, weight, shared, shape, N: gl.constexpr):
    """Have the operands of all tiles of a program copied into shared memory."""
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
def multiply(half: gl.constexpr, shared, chunks, i, layout: gl.constexpr, N: gl.constexpr):
    """Return half a tile (ROWS, N) of the product, and the number of chunks multiplied so far."""
    hs, ws, _, empty, ready = shared
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
    return x, i


@gluon.jit
def in_two(x, N: gl.constexpr, half: gl.constexpr):
    """Part a tile (ROWS, N) in its left and right columns, in the layout of half a tile: nothing moves."""
    left, right = x.reshape((ROWS, 2, N // 2)).permute((0, 2, 1)).split()
    return gl.convert_layout(left, half, assert_trivial=True), gl.convert_layout(right, half, assert_trivial=True)


@gluon.jit
def numbers_of_pairs(pair, seed):
    """Return the two numbers of each pair that decide on its units; see ``units``."""
    a = scramble(pair.to(gl.uint32) ^ gl.load(seed).to(gl.uint32))
    return a, scramble(a + 0x9E3779B9) | 1


@gluon.jit
def drop_units(x, a, b, numbers, limit):
    """Set entries of a tile to 0, as ``units.drop`` does, with the numbers of pairs, and of units, at hand."""
    c = gl.load(numbers).to(gl.uint32)
    return gl.where(a[:, None] + b[:, None] * c[None, :] >= limit.to(gl.uint32), x, 0.0)


@gluon.jit
def copy_out(columns, result, m, n, room):
    """Have half the columns of a tile copied out, once what was copied before has left."""
    tma.store_wait(0)
    room.store(columns.to(gl.bfloat16))
    fence_async_shared()
    tma.async_copy_shared_to_global(result, [m, n], room)
